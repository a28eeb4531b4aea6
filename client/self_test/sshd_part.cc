#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/base/exit_codes.h"
#include "client/base/shell_quote.h"
#include "client/link/link.h"
#include "client/link/local_sshd.h"
#include "client/self_test/parts.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/files/sha256.h"

namespace gpuctl {
namespace {

constexpr char kSshdCheck[] = "sshd";
constexpr size_t kBytes = (4 << 20) + 4321;  // no multiple of any buffer

// Returns bytes that repeat only after 64 KiB.
std::string SomeBytes() {
  std::string block;
  for (int i = 0; i < 32; ++i) block += RandomHex(1024);
  std::string bytes;
  while (bytes.size() < kBytes) bytes += block;
  bytes.resize(kBytes);
  return bytes;
}

// Runs a command there with `input` as its stdin, and returns its stdout.
absl::StatusOr<std::string> RunThere(LinkFactory& links, const std::string& command,
                                     absl::string_view input) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RemoteCommand> remote, links.Run(command));
  RETURN_IF_ERROR(WriteAll(remote->fd(), input, "the command's input"));
  shutdown(remote->fd(), SHUT_WR);
  std::string output;
  std::string buffer(256 << 10, '\0');
  while (true) {
    const ssize_t got = read(remote->fd(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    output.append(buffer.data(), static_cast<size_t>(got));
  }
  ASSIGN_OR_RETURN(const int code, remote->Wait());
  if (code == 0) return output;
  return absl::FailedPreconditionError(
      absl::StrCat("a command there: exit ", code, ": ", remote->Stderr()));
}

// Returns what was moved, for people.
absl::StatusOr<std::string> MoveBytes(const TestPlace& place, Clock& clock) {
  SshLinkOptions options;
  options.target.provider = options.target.name = "local";
  options.state_dir = JoinPath(place.dir, "ssh");
  const std::unique_ptr<LinkFactory> links = MakeSshLinkFactory(std::move(options));
  const absl::Duration begin = clock.SinceBoot();
  ASSIGN_OR_RETURN(const std::string said, RunThere(*links, "echo gpuctl is here", ""));
  if (absl::StripAsciiWhitespace(said) != "gpuctl is here") {
    return absl::DataLossError(absl::StrCat("a command there printed \"", said.substr(0, 200),
                                            "\", not what it was told to"));
  }
  const absl::Duration connected = clock.SinceBoot();
  const std::string bytes = SomeBytes(), digest = Sha256HexOf(bytes);
  const std::string path = JoinPath(place.dir, "moved");
  RETURN_IF_ERROR(RunThere(*links, absl::StrCat("cat > ", ShellQuote(path)), bytes).status());
  ASSIGN_OR_RETURN(const std::string there, Sha256HexOfFile(path));
  if (there != digest) return absl::DataLossError("what was sent arrived changed");
  ASSIGN_OR_RETURN(const std::string back,
                   RunThere(*links, absl::StrCat("cat ", ShellQuote(path)), ""));
  if (Sha256HexOf(back) != digest) return absl::DataLossError("what was fetched arrived changed");
  return absl::StrCat(FindSshd(), ": a login and a command took ",
                      absl::ToInt64Milliseconds(connected - begin),
                      " ms; 4 MiB went there and came back with the same SHA-256");
}

}  // namespace

void TestSshd(const TestPlace& place, Reporter& report) {
  if (FindSshd().empty()) {
    return report.Fail(kSshdCheck, "not found",
                       "install it: apt install openssh-server (macOS has it)");
  }
  const absl::StatusOr<std::string> moved = MoveBytes(place, report.clock());
  if (moved.ok()) return report.Ok(kSshdCheck, *moved);
  const std::string log =
      ReadFileToString(JoinPath(place.dir, "ssh/ssh/local/sshd.log")).value_or(std::string());
  const absl::string_view words = absl::StripAsciiWhitespace(log);
  report.Fail(kSshdCheck,
              absl::StrCat(FindSshd(), ": ", moved.status().message(),
                           words.empty() ? "" : "; its log: ", words.substr(0, 300)),
              absl::StrCat("`", FindSshd(),
                           " -T` must work; install openssh-server again, or use --host or a "
                           "rented machine: only runs on this machine need it"));
}

}  // namespace gpuctl
