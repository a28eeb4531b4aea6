// flock(2) as a sign of life: the holder of a lock is alive, whatever a pid says.
#ifndef GPUCTL_COMMON_FILES_FILE_LOCK_H_
#define GPUCTL_COMMON_FILES_FILE_LOCK_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// Locks `path` (created 0600) exclusively without waiting. The lock lasts while the descriptor, or
// an inherited copy of it, is open. UNAVAILABLE when somebody else holds the lock.
absl::StatusOr<UniqueFd> TryLock(const std::string& path);

// Locks `path` in the same way, and waits while somebody else holds it.
absl::StatusOr<UniqueFd> WaitForLock(const std::string& path);

// Locks `path` together with others that lock it so. Waits while somebody holds it alone, as
// TryLock and WaitForLock do.
absl::StatusOr<UniqueFd> WaitForSharedLock(const std::string& path);

// True when somebody holds `path` exclusively; false for a missing file. The probe takes a shared
// lock for an instant, so a TryLock at the same time can fail; owners that matter retry.
absl::StatusOr<bool> IsLocked(const std::string& path);

// Do that for a lock whose holders remove its file once nobody needs it. All who lock such a file
// must use these: a lock on a file that was removed meanwhile keeps nobody out, and does not count.
absl::StatusOr<UniqueFd> TryRemovableLock(const std::string& path);
// Removes the file of a held lock, and gives the lock up.
void RemoveLock(UniqueFd lock, const std::string& path);

// True when the file of `lock` was removed. False when it cannot be told.
bool IsRemoved(const UniqueFd& lock);

// True when the file of `lock` was removed, and another one is at `path`: then somebody else may
// hold that one. False when it cannot be told.
bool IsReplaced(const UniqueFd& lock, const std::string& path);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FILES_FILE_LOCK_H_
