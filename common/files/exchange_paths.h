// The exchange of two files or directories in one step.
#ifndef GPUCTL_COMMON_FILES_EXCHANGE_PATHS_H_
#define GPUCTL_COMMON_FILES_EXCHANGE_PATHS_H_

#include <string>

#include "absl/status/status.h"

namespace gpuctl {

// Exchanges what has the names `a` and `b`, which both exist on one file system: nobody ever sees
// one of the names without content. UNIMPLEMENTED where the file system cannot.
absl::Status ExchangePaths(const std::string& a, const std::string& b);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FILES_EXCHANGE_PATHS_H_
