#include "agent/bundle.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/ids.h"
#include "common/status_macros.h"

namespace gpuctl {

int64_t BundleVersion(const std::string& bundle_dir) {
  absl::StatusOr<std::string> text = ReadFileToString(JoinPath(bundle_dir, "version"), 256);
  int64_t version = 0;
  if (!text.ok() || !absl::SimpleAtoi(absl::StripAsciiWhitespace(*text), &version)) return 0;
  return version;
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
  const std::string current = CurrentBundle(paths);
  if (current == resolved) return false;
  if (!current.empty() && BundleVersion(resolved) <= BundleVersion(current)) return false;
  // A symlink cannot be replaced in place: make it aside, rename over.
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
