// Runs small programs of the system to their end.
#ifndef GPUCTL_CLIENT_BASE_RUN_PROGRAM_H_
#define GPUCTL_CLIENT_BASE_RUN_PROGRAM_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace gpuctl {

// Returns the path of an executable in $PATH; "" when there is none.
std::string FindInPath(const std::string& name);

// Runs a program with `input` (at most 4 KiB) on its stdin and returns its stdout. `quiet` drops
// its stderr. FAILED_PRECONDITION when it fails; the error names the program and nothing of the
// input.
absl::StatusOr<std::string> OutputOf(const std::vector<std::string>& argv,
                                     absl::string_view input = "", bool quiet = false);

struct ProgramEnd {
  int exit_code = 0;
  std::string output;  // its stdout
  bool cut = false;    // with `keep_bytes`: it printed more, and was killed
};

// Runs a program that may never end. It gets its own session, an empty stdin, and `env`
// ("NAME=value") before the environment of this process; its stderr is dropped. DEADLINE_EXCEEDED
// when it has not ended within `limit`: then it and its children are killed. FAILED_PRECONDITION
// when a signal killed it, RESOURCE_EXHAUSTED when it prints more than 1 MiB. When `signal_fd`
// becomes readable, it gets SIGTERM, once, and may end within the limit. With `keep_bytes` above 0
// its output is cut there instead, with the exit code 0.
absl::StatusOr<ProgramEnd> RunWithin(absl::Duration limit, const std::vector<std::string>& argv,
                                     const std::vector<std::string>& env = {}, int signal_fd = -1,
                                     size_t keep_bytes = 0);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_RUN_PROGRAM_H_
