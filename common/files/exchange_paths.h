// The exchange of two files or directories in one step.
#ifndef GPUCTL_COMMON_FILES_EXCHANGE_PATHS_H_
#define GPUCTL_COMMON_FILES_EXCHANGE_PATHS_H_

#include <string>

#include "absl/status/status.h"

namespace gpuctl {

// Exchanges what has the names `a` and `b`, which both exist on one file system: nobody ever sees
// one of the names without content. UNIMPLEMENTED where the file system cannot.
absl::Status ExchangePaths(const std::string& a, const std::string& b);

// Puts the directory `from` into the place of the directory `to`, in one step where the file system
// can exchange two names. Elsewhere a crash may leave `to` under another name for a moment;
// SettleReplaced finds it. On error `to` is what it was. Syncs the directory around `to`.
absl::Status ReplaceDirectory(const std::string& from, const std::string& to);
// Gives `to` back what a crash in ReplaceDirectory left without its name, and removes what such a
// crash left over.
absl::Status SettleReplaced(const std::string& to);

// The beginning of that other name, beside `to`.
constexpr char kOlderPrefix[] = ".gpuctl-older-";

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FILES_EXCHANGE_PATHS_H_
