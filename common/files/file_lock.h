// flock(2) as liveness: whoever holds the lock is alive, whatever a pid says.
#ifndef GPUCTL_COMMON_FILES_FILE_LOCK_H_
#define GPUCTL_COMMON_FILES_FILE_LOCK_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// Takes `path` (created 0600) exclusively without waiting; the lock lives as long as the descriptor
// and everything that inherited it. UNAVAILABLE when somebody else holds it.
absl::StatusOr<UniqueFd> TryLock(const std::string& path);

// The same, waiting for as long as somebody else holds it.
absl::StatusOr<UniqueFd> WaitForLock(const std::string& path);

// True when somebody holds `path` exclusively. The probe takes a shared lock for an instant, so a
// TryLock that races with it can fail: owners that matter retry. False for a missing file.
absl::StatusOr<bool> IsLocked(const std::string& path);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FILES_FILE_LOCK_H_
