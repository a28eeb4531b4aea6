// Relative paths of trees: which are safe, their order, and their parents. No file is touched.
#ifndef GPUCTL_COMMON_FILES_RELATIVE_PATH_H_
#define GPUCTL_COMMON_FILES_RELATIVE_PATH_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// True when `path` is relative, non-empty and has no "", "." or ".." component and no NUL.
bool IsSafeRelativePath(absl::string_view path);

// The order in which a walk meets paths that takes each directory's names in the order of their
// bytes. "a" < "a/b" < "a-b".
bool PathLess(absl::string_view a, absl::string_view b);

// The directory part of a relative path; "" at the top.
absl::string_view ParentPath(absl::string_view path);

// Returns errno as an error of `doing` something to `path`; bytes that are no text are escaped.
absl::Status PathError(absl::string_view doing, absl::string_view path);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FILES_RELATIVE_PATH_H_
