#include "client/base/run_program.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/process/pipe.h"
#include "common/process/process.h"

namespace gpuctl {
namespace {

constexpr size_t kMaxInputBytes = 4096;  // what a pipe takes at once, whoever reads it
constexpr size_t kMaxOutputBytes = 1 << 20;

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

}  // namespace gpuctl
