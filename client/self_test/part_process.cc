#include "client/self_test/part_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/base/paths.h"
#include "client/base/run_program.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/process/pipe.h"
#include "common/process/process.h"

namespace gpuctl {
namespace {

constexpr int64_t kMostWords = 64 << 10;
constexpr size_t kMostText = 1 << 20;

std::string LastLine(const std::string& path) {
  const std::string text = ReadFileToString(path, kMostWords).value_or(std::string());
  const absl::string_view words = absl::StripAsciiWhitespace(text);
  return std::string(words.substr(words.rfind('\n') + 1).substr(0, 400));
}

// Passes on the lines that `fd` gives until its end.
absl::Status ReadLines(int fd, absl::Duration deadline, int signal_fd,
                       const std::function<void(absl::string_view)>& on_line) {
  std::string text;
  char buffer[4096];
  while (true) {
    const absl::Duration left = deadline - Clock::Real().SinceBoot();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("it takes too long");
    pollfd polled[2] = {{fd, POLLIN, 0}, {signal_fd, POLLIN, 0}};
    if (poll(polled, 2, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) <= 0) continue;
    if (polled[1].revents != 0) return absl::CancelledError("interrupted");
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count == 0) return absl::OkStatus();
    if (count < 0 && errno != EINTR) return ErrnoStatus(errno, "read its output");
    if (count > 0) text.append(buffer, static_cast<size_t>(count));
    if (text.size() > kMostText) return absl::InternalError("it prints too much");
    for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
      on_line(absl::string_view(text).substr(0, end));
    }
  }
}

absl::Status RunToEnd(const SpawnOptions& options, UniqueFd& write_end, int fd,
                      absl::Duration limit, int signal_fd,
                      const std::function<void(absl::string_view)>& on_line) {
  const absl::Duration deadline = Clock::Real().SinceBoot() + limit;
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(options));
  write_end.reset();
  const absl::Status read = ReadLines(fd, deadline, signal_fd, on_line);
  // Its session is its process group: what it started without a session of its own ends, too.
  if (!read.ok()) kill(-pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  RETURN_IF_ERROR(read);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::InternalError(WIFSIGNALED(status)
                                 ? absl::StrCat("signal ", WTERMSIG(status), " ended it")
                                 : absl::StrCat("it exited with code ", WEXITSTATUS(status)));
}

#ifndef __linux__
// Returns the processes that ps(1) lists, with their arguments.
std::vector<FoundProcess> Listed() {
  std::vector<FoundProcess> found;
  const absl::StatusOr<ProgramEnd> ps =
      RunWithin(absl::Seconds(1), {"/bin/ps", "-axww", "-o", "pid=,command="});
  if (!ps.ok()) return found;
  for (absl::string_view line : absl::StrSplit(ps->output, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    const size_t space = line.find(' ');
    FoundProcess process;
    if (space == line.npos || !absl::SimpleAtoi(line.substr(0, space), &process.pid)) continue;
    process.command = std::string(line.substr(space + 1));
    found.push_back(std::move(process));
  }
  return found;
}
#endif

}  // namespace

PartEnd RunPart(const std::string& part, const TestPlace& place, absl::Duration limit,
                int signal_fd, const std::function<void(absl::string_view line)>& on_line) {
  const std::string words = JoinPath(place.dir, absl::StrCat(part, ".stderr"));
  absl::StatusOr<FdPair> ends = MakePipe("make a pipe");
  if (!ends.ok()) return {ends.status(), ""};
  const UniqueFd said(file_ops::Open(words, O_WRONLY | O_CREAT | O_APPEND, 0600));
  SpawnOptions options;
  options.argv = {
      ExecutablePath(), "doctor", "--self-test-part", part, "--self-test-dir", place.dir, "-o",
      "jsonl"};
  options.stdout_fd = ends->second.get();
  options.stderr_fd = said.get();
  options.new_session = true;
  PartEnd end;
  end.status = RunToEnd(options, ends->second, ends->first.get(), limit, signal_fd, on_line);
  end.last_words = LastLine(words);
  return end;
}

std::vector<FoundProcess> FindProcesses(const std::string& mark) {
  std::vector<FoundProcess> found;
#ifdef __linux__
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory("/proc");
  if (!names.ok()) return found;
  for (const std::string& name : *names) {
    FoundProcess process;
    if (!absl::SimpleAtoi(name, &process.pid) || process.pid == getpid()) continue;
    const std::string dir = JoinPath("/proc", name);
    process.command = ReadFileToString(JoinPath(dir, "cmdline"), 8 << 20).value_or("");
    if (absl::StrContains(process.command, mark) ||
        absl::StrContains(ReadFileToString(JoinPath(dir, "environ"), 8 << 20).value_or(""), mark)) {
      absl::StrReplaceAll({{absl::string_view("\0", 1), " "}}, &process.command);
      found.push_back(std::move(process));
    }
  }
#else
  for (FoundProcess& process : Listed()) {
    if (process.pid != getpid() && absl::StrContains(process.command, mark)) {
      found.push_back(std::move(process));
    }
  }
#endif
  return found;
}

absl::Status KillProcesses(const std::string& mark, absl::Duration limit, Clock& clock) {
  const absl::Duration end = clock.SinceBoot() + limit;
  while (true) {
    // Listed anew each time, because one may have started another.
    const std::vector<FoundProcess> left = FindProcesses(mark);
    if (left.empty()) return absl::OkStatus();
    for (const FoundProcess& process : left) kill(process.pid, SIGKILL);
    if (clock.SinceBoot() > end) {
      return absl::DeadlineExceededError(
          absl::StrCat("process ", left[0].pid, " does not end: ", left[0].command.substr(0, 200)));
    }
    clock.SleepFor(absl::Milliseconds(20));
  }
}

}  // namespace gpuctl
