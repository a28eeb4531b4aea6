#include "client/reach/open_ssh.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/host_keys.h"
#include "client/base/run_program.h"
#include "client/cluster/allocation_ssh.h"
#include "client/node/explain_error.h"
#include "client/reach/ssh_files.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

// Copies until `from` ends or `to` takes no more.
absl::Status Copy(int from, int to, absl::string_view what) {
  std::string bytes(256 << 10, '\0');
  for (;;) {
    const ssize_t count = read(from, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(errno, absl::StrCat("read from ", what));
    if (count == 0) return absl::OkStatus();
    RETURN_IF_ERROR(
        WriteAll(to, absl::string_view(bytes.data(), static_cast<size_t>(count)), what));
  }
}

}  // namespace

bool NeedsLoginFirst(const ClientPaths& paths, const RunRow& row) {
  // Our own sshd has its key from us, and no pin from anybody before the first link.
  return IsAllocationTarget(row.target) || !KnowsPinnedKey(paths, PinName(row.target));
}

std::string SshHostOf(const RunRow& row) { return absl::StrCat(kSshHostPrefix, row.name); }

absl::StatusOr<std::vector<std::string>> SshCommandFor(CommandContext& context, const RunRow& row,
                                                       LinkFactory& links) {
  const std::string ssh = FindInPath("ssh");
  if (ssh.empty()) {
    return WithExitCode(
        WithHint(absl::FailedPreconditionError("there is no ssh in PATH"),
                 "install OpenSSH's client; gpuctl exec and gpuctl cp work without it"),
        kExitNotFound);
  }
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  if (NeedsLoginFirst(paths, row)) {
    if (const absl::Status status = links.TryLogin(); !status.ok()) {
      return ExplainLinkError(status, row.target);
    }
  }
  ASSIGN_OR_RETURN(const std::string config, WriteSshHost(paths, row.name, row));
  return std::vector<std::string>{ssh, "-F", config};
}

std::string ForwardArgument(const PortPair& pair) {
  return absl::StrCat("127.0.0.1:", pair.local, ":localhost:", pair.port);
}

absl::Status Become(const std::vector<std::string>& argv) {
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  signal(SIGPIPE, SIG_DFL);  // as programs expect it
  signal(SIGXFSZ, SIG_DFL);
  execv(words[0], words.data());
  const int error = errno;
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  return ErrnoStatus(error, absl::StrCat("start ", argv[0]));
}

void FollowLifeline() {
  const char* lifeline = std::getenv("GPUCTL_LIFELINE");
  if (lifeline == nullptr || absl::string_view(lifeline) != "stderr") return;
  std::thread([] {
    pollfd reader{STDERR_FILENO, 0, 0};
    while (poll(&reader, 1, -1) < 0 && errno == EINTR) {
    }
    _exit(kExitFailed);
  }).detach();
}

absl::Status RelayStdio(UniqueFd socket) {
  const int fd = socket.release();  // the thread uses it until the process ends
  std::thread([fd] {
    (void)Copy(STDIN_FILENO, fd, "ssh");
    shutdown(fd, SHUT_WR);
  }).detach();
  return Copy(fd, STDOUT_FILENO, "the machine");
}

}  // namespace gpuctl
