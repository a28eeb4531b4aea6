#include "common/files/staging_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr absl::string_view kLockName = "lock";
constexpr absl::string_view kHelpersName = "helpers";
constexpr int kCreateAttempts = 16;
constexpr int kRemoveAttempts = 5;
// The lock is held for microseconds.
constexpr absl::Duration kLockPatience = absl::Seconds(1);
constexpr absl::Duration kLockInterval = absl::Milliseconds(1);

// True when `fd` is still the file at `path`: nobody removed it between its opening and its lock.
bool IsFileAt(int fd, const std::string& path) {
  struct stat held {};
  struct stat named {};
  return fstat(fd, &held) == 0 && lstat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

// Locks the directory at `path`. The lock is held while a staging directory is made and while one
// is judged abandoned, so that neither sees the other half done. Where directories cannot be locked
// (some network file systems), or another user who may read it holds the lock, the descriptor is
// invalid, and Create tries again instead.
UniqueFd LockDirectory(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const absl::Duration end = Clock::Real().SinceBoot() + kLockPatience;
  while (fd.valid() && flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    const bool held = errno == EWOULDBLOCK || errno == EINTR;
    if (!held || Clock::Real().SinceBoot() >= end) fd.reset();
    Clock::Real().SleepFor(kLockInterval);
  }
  return fd;
}

// True for a directory that this user made. In a directory that others may write to (/tmp) they
// could lay out a leftover whose files they change later.
bool IsOurs(const struct stat& info) {
  return S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 022) == 0;
}

}  // namespace

absl::StatusOr<StagingDir> StagingDir::Create(const std::string& parent) {
  absl::Status status;
  for (int attempt = 0; attempt < kCreateAttempts; ++attempt) {
    const UniqueFd quiet = LockDirectory(parent);
    std::string path = JoinPath(parent, absl::StrCat(kStagingPrefix, RandomHex(8)));
    if (file_ops::MkDir(path) != 0) {
      return ErrnoStatus(errno, absl::StrCat("make directory ", path));
    }
    const std::string lock_path = JoinPath(path, kLockName);
    absl::StatusOr<UniqueFd> lock = TryLock(lock_path);
    if (lock.ok() && IsFileAt(lock->get(), lock_path)) {
      return StagingDir(std::move(path), *std::move(lock));
    }
    // RemoveAbandonedStaging can run between mkdir and lock; then Create tries another name.
    status = lock.ok() ? absl::UnavailableError(absl::StrCat("lock ", lock_path, ": was removed"))
                       : lock.status();
    (void)RemoveTree(path);
    if (!absl::IsUnavailable(status) && !absl::IsNotFound(status)) return status;
  }
  return status;
}

StagingDir::~StagingDir() {
  if (!lock_.valid() || keep_) return;
  // Somebody who looks whether it is abandoned may make a lock in it meanwhile.
  for (int i = 0; i < kRemoveAttempts && !RemoveTree(path_).ok(); ++i) {
  }
}

absl::StatusOr<std::vector<StagingDir>> TakeAbandonedStaging(const std::string& parent) {
  std::vector<StagingDir> taken;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(parent);
  if (absl::IsNotFound(names.status())) return taken;
  if (!names.ok()) return names.status();
  std::vector<std::pair<int64_t, std::string>> newest_first;
  for (const std::string& name : *names) {
    struct stat info {};
    const std::string path = JoinPath(parent, name);
    if (!absl::StartsWith(name, kStagingPrefix) || lstat(path.c_str(), &info) != 0) continue;
    if (!IsOurs(info)) continue;
    newest_first.emplace_back(-int64_t{info.st_mtime}, path);
  }
  std::sort(newest_first.begin(), newest_first.end());
  for (const std::pair<int64_t, std::string>& found : newest_first) {
    const std::string& path = found.second;
    absl::StatusOr<UniqueFd> lock = [&] {
      const UniqueFd quiet = LockDirectory(parent);
      return TryLock(JoinPath(path, kLockName));
    }();
    if (!lock.ok()) continue;
    StagingDir staging(path, *std::move(lock));
    // A helper that outlived its owner may still be writing.
    absl::StatusOr<UniqueFd> helpers = TryLock(JoinPath(path, kHelpersName));
    if (!helpers.ok()) {
      staging.Keep();
      continue;
    }
    staging.helpers_ = *std::move(helpers);
    taken.push_back(std::move(staging));
  }
  return taken;
}

bool IsAbandonedStaging(const std::string& path) {
  const UniqueFd quiet = LockDirectory(DirName(path));
  return !absl::IsUnavailable(TryLock(JoinPath(path, kLockName)).status()) &&
         !absl::IsUnavailable(TryLock(JoinPath(path, kHelpersName)).status());
}

absl::StatusOr<UniqueFd> HelpWithStaging(const std::string& path) {
  const std::string helpers = JoinPath(path, kHelpersName);
  UniqueFd fd(open(helpers.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", helpers));
  if (flock(fd.get(), LOCK_SH | LOCK_NB) != 0) {
    const std::string doing = absl::StrCat("lock ", helpers);
    return errno == EWOULDBLOCK ? absl::UnavailableError(absl::StrCat(doing, ": was taken over"))
                                : ErrnoStatus(errno, doing);
  }
  if (!IsFileAt(fd.get(), helpers)) {
    return absl::UnavailableError(absl::StrCat("lock ", helpers, ": was removed"));
  }
  return fd;
}

absl::Status RemoveAbandonedStaging(const std::string& parent) {
  return TakeAbandonedStaging(parent).status();
}

}  // namespace gpuctl
