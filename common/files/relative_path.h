// Relative paths of trees: their safety, order and parents. Nothing here touches a file.
#ifndef GPUCTL_COMMON_FILES_RELATIVE_PATH_H_
#define GPUCTL_COMMON_FILES_RELATIVE_PATH_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// True when `path` is relative, non-empty and has no "", "." or ".." component and no NUL.
bool IsSafeRelativePath(absl::string_view path);

// True when a walk meets `a` before `b`, if it visits each directory's names in byte order. "a" <
// "a/b" < "a-b".
bool PathLess(absl::string_view a, absl::string_view b);

// Returns the directory part of a relative path; "" at the top.
absl::string_view ParentPath(absl::string_view path);

// Returns errno as an error of `doing` something to `path`. Bytes that are not text are escaped.
absl::Status PathError(absl::string_view doing, absl::string_view path);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FILES_RELATIVE_PATH_H_
