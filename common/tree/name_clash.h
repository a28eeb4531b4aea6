// Names that differ only by case, on file systems for which they are the same.
#ifndef GPUCTL_COMMON_TREE_NAME_CLASH_H_
#define GPUCTL_COMMON_TREE_NAME_CLASH_H_

#include "absl/status/status.h"
#include "common/tree/manifest.h"

namespace gpuctl {

// True when the file system of the open directory takes "A" and "a" for one name. Makes and removes
// an empty file to find out; false when it cannot.
bool FoldsCase(int dir_fd);

// FAILED_PRECONDITION, naming both, when two entries of the manifest differ only by the case of
// ASCII letters: where case is folded the second would overwrite the first.
absl::Status CheckNameClashes(const Manifest& manifest);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TREE_NAME_CLASH_H_
