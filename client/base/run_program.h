// Small programs of the system, run to the end.
#ifndef GPUCTL_CLIENT_BASE_RUN_PROGRAM_H_
#define GPUCTL_CLIENT_BASE_RUN_PROGRAM_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace gpuctl {

// The path of an executable in $PATH; "" when there is none.
std::string FindInPath(const std::string& name);

// What the program prints on stdout, given `input` (at most 4 KiB) on its stdin; `quiet` drops what
// it says on stderr. FAILED_PRECONDITION when it fails, naming the program and nothing of the
// input.
absl::StatusOr<std::string> OutputOf(const std::vector<std::string>& argv,
                                     absl::string_view input = "", bool quiet = false);

struct ProgramEnd {
  int exit_code = 0;
  std::string output;  // what it printed on stdout
};

// Runs a program that nobody knows to end: in a session of its own, with nothing on stdin, its
// stderr dropped and `env` ("NAME=value") before our environment. DEADLINE_EXCEEDED when it has not
// ended within `limit`: then it and what it started are killed. FAILED_PRECONDITION when it was
// killed by a signal, RESOURCE_EXHAUSTED when it prints more than 1 MiB.
absl::StatusOr<ProgramEnd> RunWithin(absl::Duration limit, const std::vector<std::string>& argv,
                                     const std::vector<std::string>& env = {});

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_RUN_PROGRAM_H_
