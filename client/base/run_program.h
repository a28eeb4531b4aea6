// Small programs of the system, run to the end.
#ifndef GPUCTL_CLIENT_BASE_RUN_PROGRAM_H_
#define GPUCTL_CLIENT_BASE_RUN_PROGRAM_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// The path of an executable in $PATH; "" when there is none.
std::string FindInPath(const std::string& name);

// What the program prints on stdout, given `input` (at most 4 KiB) on its stdin; `quiet` drops what
// it says on stderr. FAILED_PRECONDITION when it fails, naming the program and nothing of the
// input.
absl::StatusOr<std::string> OutputOf(const std::vector<std::string>& argv,
                                     absl::string_view input = "", bool quiet = false);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_RUN_PROGRAM_H_
