#include "provisioning/ledger/lease_lock.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

// The patience for a lock: longer than any probe of it.
constexpr absl::Duration kLockPatience = absl::Seconds(1);
constexpr absl::Duration kLockPause = absl::Milliseconds(20);

std::string LockPath(const std::string& state_dir, absl::string_view lease_id) {
  return JoinPath(JoinPath(state_dir, "locks"), lease_id);
}

absl::StatusOr<UniqueFd> LockPatiently(const std::string& path, Clock& clock) {
  RETURN_IF_ERROR(MakeDirectories(DirName(path)));
  const absl::Duration end = clock.SinceBoot() + kLockPatience;
  for (;;) {
    absl::StatusOr<UniqueFd> fd = TryLock(path);
    if (fd.ok() || !absl::IsUnavailable(fd.status()) || clock.SinceBoot() >= end) return fd;
    clock.SleepFor(kLockPause);
  }
}

}  // namespace

absl::StatusOr<LeaseLock> LeaseLock::Take(const std::string& state_dir, absl::string_view lease_id,
                                          Clock& clock) {
  absl::StatusOr<UniqueFd> fd = LockPatiently(LockPath(state_dir, lease_id), clock);
  if (!fd.ok()) return Annotate(fd.status(), absl::StrCat("take lease ", lease_id));
  return LeaseLock(*std::move(fd));
}

absl::StatusOr<LeaseLock> LeaseLock::TakeUse(const std::string& state_dir,
                                             absl::string_view lease_id, Clock& clock) {
  absl::StatusOr<UniqueFd> fd =
      LockPatiently(absl::StrCat(LockPath(state_dir, lease_id), ".use"), clock);
  if (!fd.ok()) return Annotate(fd.status(), absl::StrCat("use lease ", lease_id));
  return LeaseLock(*std::move(fd));
}

absl::StatusOr<bool> LeaseLock::IsUseHeld(const std::string& state_dir,
                                          absl::string_view lease_id) {
  return IsLocked(absl::StrCat(LockPath(state_dir, lease_id), ".use"));
}

absl::StatusOr<LeaseLock> LeaseLock::TakeOver(const std::string& state_dir,
                                              absl::string_view lease_id, UniqueFd fd) {
  const std::string path = LockPath(state_dir, lease_id);
  struct stat passed {};
  struct stat there {};
  const bool same = fstat(fd.get(), &passed) == 0 && stat(path.c_str(), &there) == 0 &&
                    passed.st_dev == there.st_dev && passed.st_ino == there.st_ino;
  if (same && IsLocked(path).value_or(false)) return LeaseLock(std::move(fd));
  return absl::FailedPreconditionError(absl::StrCat("take over lease ", lease_id, ": no lock"));
}

absl::StatusOr<bool> LeaseLock::IsHeld(const std::string& state_dir, absl::string_view lease_id) {
  return IsLocked(LockPath(state_dir, lease_id));
}

}  // namespace gpuctl
