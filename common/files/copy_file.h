#ifndef GPUCTL_COMMON_FILES_COPY_FILE_H_
#define GPUCTL_COMMON_FILES_COPY_FILE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// Copies the content of one open file to another, which is new and empty. Shares blocks where the
// file system can, and keeps holes. Returns the bytes copied. `shown` names the file in errors.
absl::StatusOr<int64_t> CopyFileContent(int from_fd, int to_fd, absl::string_view shown);

// Copies at most `length` bytes from `offset` to the same offset in the other file, as
// CopyFileContent does.
absl::StatusOr<int64_t> CopyFileRange(int from_fd, int to_fd, int64_t offset, int64_t length,
                                      absl::string_view shown);

// True when the empty file `to_fd` now shares the blocks of the other file (a reflink); false where
// the file system cannot.
bool CloneFile(int from_fd, int to_fd);

// Copies in the kernel, where that is possible (Linux), and returns the bytes copied. When that is
// less than `length`, or 0, the caller copies the rest itself.
int64_t CopyInKernel(int from_fd, int to_fd, int64_t offset, int64_t length);

// Sends in the kernel into a pipe or socket, and waits for its reader. Returns the bytes sent; the
// caller sends the rest itself and so meets the error again.
int64_t SendInKernel(int from_fd, int to_fd, int64_t offset, int64_t length);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FILES_COPY_FILE_H_
