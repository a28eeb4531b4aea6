#include "agent/bundle/bundle.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"

namespace gpuctl {

namespace {

constexpr int32_t kLevelUnsaid = 1;

template <typename Number>
Number ReadNumber(const std::string& path, Number otherwise) {
  const absl::StatusOr<std::string> text = ReadFileToString(path, 256);
  Number number = 0;
  if (!text.ok() || !absl::SimpleAtoi(absl::StripAsciiWhitespace(*text), &number)) {
    return otherwise;
  }
  return number;
}

bool Displaces(const std::string& dir, const std::string& current) {
  return current.empty() || (current != dir && IsNewerBundle(dir, current));
}

}  // namespace

int64_t BundleVersion(const std::string& bundle_dir) {
  return ReadNumber<int64_t>(JoinPath(bundle_dir, "version"), 0);
}

int32_t BundleApiLevel(const std::string& bundle_dir) {
  return ReadNumber<int32_t>(JoinPath(bundle_dir, "api_level"), kLevelUnsaid);
}

bool IsNewerBundle(const std::string& dir, const std::string& other) {
  return std::pair(BundleApiLevel(dir), BundleVersion(dir)) >
         std::pair(BundleApiLevel(other), BundleVersion(other));
}

std::string CurrentBundle(const RootPaths& paths) {
  char resolved[PATH_MAX];
  return realpath(paths.bin_current.c_str(), resolved) != nullptr ? resolved : "";
}

absl::StatusOr<bool> AdoptBundle(const RootPaths& paths, const std::string& bundle_dir) {
  char resolved[PATH_MAX];
  if (realpath(bundle_dir.c_str(), resolved) == nullptr) {
    return ErrnoStatus(errno, absl::StrCat("adopt bundle ", bundle_dir));
  }
  if (!Displaces(resolved, CurrentBundle(paths))) return false;
  RETURN_IF_ERROR(MakeDirectories(paths.bin));
  ASSIGN_OR_RETURN(const UniqueFd lock, WaitForLock(JoinPath(paths.bin, kBundleLock)));
  if (!Displaces(resolved, CurrentBundle(paths))) return false;
  // A symlink cannot be replaced in place: make a new one and rename it over the old.
  const std::string temporary = absl::StrCat(paths.bin_current, ".tmp-", RandomHex(6));
  if (symlink(resolved, temporary.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("adopt bundle: make link ", temporary));
  }
  if (file_ops::Rename(temporary, paths.bin_current) != 0) {
    const int error = errno;
    unlink(temporary.c_str());
    return ErrnoStatus(error, absl::StrCat("adopt bundle: rename to ", paths.bin_current));
  }
  RETURN_IF_ERROR(SyncDirectory(paths.bin));
  return true;
}

}  // namespace gpuctl
