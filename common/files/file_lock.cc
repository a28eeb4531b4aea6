#include "common/files/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

// Opens the lock's file, and makes it when it is missing. On a read-only disk a lock on an existing
// file holds as well.
UniqueFd OpenLock(const std::string& path) {
  UniqueFd fd(file_ops::Open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
  if (!fd.valid() && errno == EROFS) {
    fd = UniqueFd(file_ops::Open(path, O_RDONLY | O_NOFOLLOW));
    if (!fd.valid()) errno = EROFS;
  }
  return fd;
}

absl::StatusOr<UniqueFd> LockAndWait(const std::string& path, int how) {
  UniqueFd fd = OpenLock(path);
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open lock ", path));
  while (flock(fd.get(), how) != 0) {
    if (errno != EINTR) return ErrnoStatus(errno, absl::StrCat("lock ", path));
  }
  return fd;
}

}  // namespace

absl::StatusOr<UniqueFd> TryLock(const std::string& path) {
  UniqueFd fd = OpenLock(path);
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open lock ", path));
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return absl::UnavailableError(absl::StrCat("lock ", path, ": held by another process"));
    }
    return ErrnoStatus(errno, absl::StrCat("lock ", path));
  }
  return fd;
}

absl::StatusOr<UniqueFd> WaitForLock(const std::string& path) { return LockAndWait(path, LOCK_EX); }

absl::StatusOr<UniqueFd> WaitForSharedLock(const std::string& path) {
  return LockAndWait(path, LOCK_SH);
}

absl::StatusOr<bool> IsLocked(const std::string& path) {
  UniqueFd fd(file_ops::Open(path, O_RDONLY));
  if (!fd.valid()) {
    if (errno == ENOENT) return false;
    return ErrnoStatus(errno, absl::StrCat("open lock ", path));
  }
  if (flock(fd.get(), LOCK_SH | LOCK_NB) == 0) return false;
  if (errno == EWOULDBLOCK) return true;
  return ErrnoStatus(errno, absl::StrCat("probe lock ", path));
}

absl::StatusOr<UniqueFd> TryRemovableLock(const std::string& path) {
  for (;;) {
    absl::StatusOr<UniqueFd> lock = TryLock(path);
    // Its holder may have removed the file between our open and our lock.
    if (!lock.ok() || !IsRemoved(*lock)) return lock;
  }
}

void RemoveLock(UniqueFd lock, const std::string& path) {
  if (lock.valid() && !IsRemoved(lock)) (void)file_ops::Unlink(path);
}

bool IsRemoved(const UniqueFd& lock) {
  struct stat held {};
  return fstat(lock.get(), &held) == 0 && held.st_nlink == 0;
}

// Inode numbers are not compared: some network file systems change them.
bool IsReplaced(const UniqueFd& lock, const std::string& path) {
  struct stat there {};
  return IsRemoved(lock) && stat(path.c_str(), &there) == 0;
}

}  // namespace gpuctl
