#include "client/base/run_program.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/process/pipe.h"
#include "common/process/process.h"

namespace gpuctl {
namespace {

constexpr size_t kMaxInputBytes = 4096;  // a pipe takes this much before anybody reads
constexpr size_t kMaxOutputBytes = 1 << 20;

// Reads `fd` to its end, or until `deadline` on the machine's clock. Sends SIGTERM to `pid` when
// `signal_fd` becomes readable; -1: there is none. Returns when `most_bytes` are exceeded.
absl::StatusOr<std::string> ReadUntil(absl::Duration deadline, int fd, pid_t pid, int signal_fd,
                                      size_t most_bytes) {
  std::string output;
  char buffer[4096];
  while (true) {
    const absl::Duration left = deadline - Clock::Real().SinceBoot();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("it takes too long");
    pollfd polled[2] = {{fd, POLLIN, 0}, {signal_fd, POLLIN, 0}};
    const int ready = poll(polled, 2, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (ready <= 0) continue;  // the time is up, or a signal came
    if (polled[1].revents != 0) {
      kill(pid, SIGTERM);
      signal_fd = -1;
    }
    if (polled[0].revents == 0) continue;
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count == 0) return output;
    if (count < 0 && errno != EINTR) return ErrnoStatus(errno, "read its output");
    if (count > 0) output.append(buffer, static_cast<size_t>(count));
    if (output.size() > most_bytes) return output;
  }
}

// Waits for the end of `pid`, which has closed its output, and stores its wait status.
absl::Status WaitUntil(absl::Duration deadline, pid_t pid, int& status) {
  constexpr absl::Duration kFirstPause = absl::Microseconds(50);
  constexpr absl::Duration kLongestPause = absl::Milliseconds(20);
  for (absl::Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid) return absl::OkStatus();
    if (ended < 0 && errno != EINTR) return ErrnoStatus(errno, "wait for it");
    if (Clock::Real().SinceBoot() > deadline) {
      return absl::DeadlineExceededError("it takes too long");
    }
    Clock::Real().SleepFor(pause);
  }
}

// Kills the whole session of `pid`, children included, and stores its wait status.
void KillSession(pid_t pid, int& status) {
  kill(-pid, SIGKILL);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace

std::string FindInPath(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (const absl::string_view dir :
       absl::StrSplit(path == nullptr ? "/usr/bin:/bin" : path, ':')) {
    const std::string candidate = JoinPath(dir, name);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

absl::StatusOr<std::string> OutputOf(const std::vector<std::string>& argv, absl::string_view input,
                                     bool quiet) {
  ASSIGN_OR_RETURN(FdPair ends, MakePipe("make a pipe"));
  UniqueFd read_end = std::move(ends.first), write_end = std::move(ends.second);
  FdPair input_ends;
  if (!input.empty()) {
    if (input.size() > kMaxInputBytes) {
      return absl::InvalidArgumentError(absl::StrCat("run ", argv[0], ": its input is too long"));
    }
    ASSIGN_OR_RETURN(input_ends, MakePipe("make a pipe"));
    RETURN_IF_ERROR(WriteAll(input_ends.second.get(), input, absl::StrCat("input of ", argv[0])));
    input_ends.second.reset();
  }
  SpawnOptions options;
  options.argv = argv;
  options.stdin_fd = input_ends.first.get();
  options.stdout_fd = write_end.get();
  options.stderr_fd = quiet ? -1 : STDERR_FILENO;
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(options));
  write_end.reset();
  std::string output;
  char buffer[4096];
  ssize_t count = 0;
  while ((count = read(read_end.get(), buffer, sizeof(buffer))) != 0) {
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 || output.size() > kMaxOutputBytes) break;
    output.append(buffer, static_cast<size_t>(count));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("run ", argv[0], ": it failed"));
  }
  return output;
}

absl::StatusOr<ProgramEnd> RunWithin(absl::Duration limit, const std::vector<std::string>& argv,
                                     const std::vector<std::string>& env, int signal_fd,
                                     size_t keep_bytes) {
  const absl::Duration deadline = Clock::Real().SinceBoot() + limit;
  ASSIGN_OR_RETURN(FdPair ends, MakePipe("make a pipe"));
  const UniqueFd read_end = std::move(ends.first);
  UniqueFd write_end = std::move(ends.second);
  SpawnOptions options;
  options.argv = argv;
  options.env = env;
  options.stdout_fd = write_end.get();
  options.new_session = true;
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(options));
  write_end.reset();
  const size_t most_bytes = keep_bytes > 0 ? keep_bytes : kMaxOutputBytes;
  absl::StatusOr<std::string> output =
      ReadUntil(deadline, read_end.get(), pid, signal_fd, most_bytes);
  const bool cut = output.ok() && output->size() > most_bytes;
  if (cut && keep_bytes == 0) output = absl::ResourceExhaustedError("it prints too much");
  int status = 0;
  if (cut && keep_bytes > 0) {
    KillSession(pid, status);
    output->resize(keep_bytes);
    return ProgramEnd{0, *std::move(output), true};
  }
  const absl::Status ended = output.ok() ? WaitUntil(deadline, pid, status) : output.status();
  if (!ended.ok()) {
    KillSession(pid, status);
    return absl::Status(ended.code(), absl::StrCat("run ", argv[0], ": ", ended.message()));
  }
  if (!WIFEXITED(status)) {
    return absl::FailedPreconditionError(absl::StrCat("run ", argv[0], ": it was killed"));
  }
  return ProgramEnd{WEXITSTATUS(status), *std::move(output), false};
}

}  // namespace gpuctl
