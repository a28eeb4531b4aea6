#include "agent/ssh/serve_ssh.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <cerrno>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/base/processes.h"
#include "agent/limits/contact.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/process/process.h"

extern char** environ;

namespace gpuctl {
namespace {

constexpr absl::Duration kEndWithin = absl::Seconds(2);
constexpr size_t kMostHeader = 80;
constexpr size_t kMostKey = 16 << 10;
// Bytes of a line of authorized_keys(5) for the environment. Old servers read lines of 8 KiB.
constexpr size_t kMostOptions = 6000;
// The beginnings of names that sessions get, the more important ones first.
constexpr const char* kSessionNames[] = {"GPUCTL_HELD_ROOT=",
                                         "CUDA_",
                                         "NVIDIA_",
                                         "ROCR_",
                                         "HIP_",
                                         "GPU_DEVICE_ORDINAL=",
                                         "ZE_",
                                         "TMPDIR=",
                                         "LD_LIBRARY_PATH=",
                                         "SLURM_"};

volatile sig_atomic_t told_to_end = 0;
void NoteSignal(int) { told_to_end = 1; }

// Returns the absolute path of sshd, which demands one; "" when there is none.
std::string NodeSshd() {
  const char* path = getenv("PATH");
  const std::string places =
      absl::StrCat(path == nullptr ? "" : path, ":/usr/sbin:/usr/local/sbin:/sbin");
  for (const absl::string_view place : absl::StrSplit(places, ':')) {
    if (!absl::StartsWith(place, "/")) continue;
    const std::string program = JoinPath(place, "sshd");
    if (access(program.c_str(), X_OK) == 0) return program;
  }
  return "";
}

// Reads no byte more: what follows is sshd's.
absl::StatusOr<std::string> ReadKey(size_t size) {
  std::string bytes(size, '\0');
  for (size_t at = 0; at < size;) {
    const ssize_t got = read(STDIN_FILENO, bytes.data() + at, size - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "read the keys");
    if (got == 0) return absl::FailedPreconditionError("the input ended before the keys");
    at += static_cast<size_t>(got);
  }
  return bytes;
}

absl::StatusOr<std::vector<size_t>> ReadSizes() {
  std::string line;
  while (!absl::EndsWith(line, "\n")) {
    if (line.size() > kMostHeader) return absl::FailedPreconditionError("the first line is long");
    ASSIGN_OR_RETURN(const std::string byte, ReadKey(1));
    line += byte;
  }
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  std::vector<size_t> sizes(2);
  if (words.size() != 3 || words[0] != kServeSshWord || !absl::SimpleAtoi(words[1], &sizes[0]) ||
      !absl::SimpleAtoi(words[2], &sizes[1]) || std::max(sizes[0], sizes[1]) > kMostKey) {
    return absl::FailedPreconditionError("the first line is not that of keys");
  }
  return sizes;
}

// sshd_config(5) has quotes, patterns and "%" in paths, and versions differ in them.
bool IsPlainPath(absl::string_view path) {
  return std::all_of(path.begin(), path.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::string_view("/._-+,@:=").find(c) != absl::string_view::npos;
  });
}

std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

// Writes what sshd reads to `directory`; returns the path of its configuration.
absl::StatusOr<std::string> WriteSshdFiles(const std::string& directory) {
  if (!IsPlainPath(directory)) {
    return absl::FailedPreconditionError(
        absl::StrCat("sshd's configuration cannot hold the path ", directory));
  }
  ASSIGN_OR_RETURN(const std::vector<size_t> sizes, ReadSizes());
  ASSIGN_OR_RETURN(const std::string host_key, ReadKey(sizes[0]));
  ASSIGN_OR_RETURN(const std::string login_key, ReadKey(sizes[1]));
  const std::string options = SessionOptions(OwnEnvironment());
  const std::string own = JoinPath(directory, "host_key");
  const std::string keys = JoinPath(directory, "authorized_keys");
  const std::string config = JoinPath(directory, "sshd_config");
  RETURN_IF_ERROR(WriteFileAtomic(own, host_key, 0600));
  RETURN_IF_ERROR(WriteFileAtomic(
      keys, absl::StrCat(options, options.empty() ? "" : " ", login_key, "\n"), 0600));
  RETURN_IF_ERROR(WriteFileAtomic(
      config,
      absl::StrCat("HostKey ", own, "\nAuthorizedKeysFile ", keys,
                   "\nStrictModes no\nUsePAM no\nPubkeyAuthentication yes\n"
                   "PasswordAuthentication no\nKbdInteractiveAuthentication no\n"
                   "PermitRootLogin prohibit-password\nPermitUserEnvironment yes\nPidFile none\n"
                   "LogLevel ERROR\nPrintMotd no\nPrintLastLog no\nUseDNS no\nX11Forwarding no\n"
                   "AllowTcpForwarding yes\nAllowAgentForwarding no\nPermitTunnel no\n"
                   "Subsystem sftp internal-sftp\n"),
      0600));
  return config;
}

// Returns sshd's exit code.
absl::StatusOr<int> ServeIn(const std::string& program, const std::string& directory) {
  SpawnOptions sshd;
  ASSIGN_OR_RETURN(const std::string config, WriteSshdFiles(directory));
  sshd.argv = {program, "-i", "-e", "-f", config};
  sshd.stdin_fd = STDIN_FILENO;
  sshd.stdout_fd = STDOUT_FILENO;
  sshd.stderr_fd = STDERR_FILENO;
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(sshd));
  int status = 0;
  for (;;) {
    const pid_t ended = waitpid(-1, &status, 0);
    if (ended == pid) break;
    if (ended < 0 && (errno != EINTR || told_to_end != 0)) return 128 + SIGTERM;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Ends all that was started over the connection. Not every cluster ends what a step has left.
void EndRest(Clock& clock) {
  const absl::Duration kill_at = clock.SinceBoot() + kEndWithin;
  const absl::Duration give_up = kill_at + kEndWithin;
  bool asked = false;
  while (clock.SinceBoot() < give_up) {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    const std::vector<ProcessId> rest = Descendants(getpid());
    if (rest.empty()) return;
    const bool kills = clock.SinceBoot() >= kill_at;
    for (const ProcessId& process : rest) {
      if (kills || !asked) SendSignal(process, kills ? SIGKILL : SIGTERM);
    }
    asked = true;
    clock.SleepFor(absl::Milliseconds(20));
  }
}

}  // namespace

std::string SessionOptions(const std::vector<std::string>& environment) {
  std::string options;
  for (const absl::string_view name : kSessionNames) {
    for (const std::string& entry : environment) {
      const bool plain = std::all_of(entry.begin(), entry.end(), [](char c) {
        return absl::ascii_isprint(static_cast<unsigned char>(c)) && c != '"' && c != '\\';
      });
      if (!plain || !absl::StartsWith(entry, name)) continue;
      const std::string option =
          absl::StrCat(options.empty() ? "" : ",", "environment=\"", entry, "\"");
      if (options.size() + option.size() <= kMostOptions) options += option;
    }
  }
  return options;
}

int RunServeSsh(const std::string& root) {
  signal(SIGPIPE, SIG_IGN);
  const std::string program = NodeSshd();
  if (program.empty()) {
    fputs("gpuctl-agent: serve-ssh: there is no sshd on this node\n", stderr);
    return kExitNoSshd;
  }
#if defined(__linux__)
  // What loses its parent becomes a child of this process.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
#endif
  struct sigaction told {};
  told.sa_handler = NoteSignal;
  for (const int number : {SIGTERM, SIGHUP, SIGINT}) sigaction(number, &told, nullptr);
  const Contact contact(RootPaths(root), Clock::Real());
  std::string directory = JoinPath(root, "sshd.XXXXXX");
  absl::StatusOr<int> code = 1;
  if (mkdtemp(directory.data()) == nullptr) {
    code = ErrnoStatus(errno, absl::StrCat("make a directory in ", root));
  } else {
    code = ServeIn(program, directory);
    EndRest(Clock::Real());
    (void)RemoveTree(directory);
  }
  if (code.ok()) return *code;
  fprintf(stderr, "gpuctl-agent: serve-ssh: %s\n", std::string(code.status().message()).c_str());
  return 1;
}

}  // namespace gpuctl
