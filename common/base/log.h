// Logging: one line a call, with time and level, to stderr or a file. It hides spdlog, so that only
// log.cc pays for including it.
#ifndef GPUCTL_COMMON_BASE_LOG_H_
#define GPUCTL_COMMON_BASE_LOG_H_

#include <string>

#include "absl/strings/string_view.h"

namespace gpuctl {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Sends lines to `path` (appending; at most 3 files of 8 MiB are kept) instead of stderr.
void LogToFile(const std::string& path);
void SetLogLevel(LogLevel level);
// Safe from any thread. Secrets never go here: callers pass names, sizes and digests.
void Log(LogLevel level, absl::string_view message);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BASE_LOG_H_
