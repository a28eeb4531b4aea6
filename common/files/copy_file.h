#ifndef GPUCTL_COMMON_FILES_COPY_FILE_H_
#define GPUCTL_COMMON_FILES_COPY_FILE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// Copies the content from one open file to another, new and empty; shares blocks where the file
// system can, and leaves holes as they are. Returns the bytes copied. `shown` names the file in
// errors.
absl::StatusOr<int64_t> CopyFileContent(int from_fd, int to_fd, absl::string_view shown);

// The same for at most `length` bytes from `offset`, to the same place in the other file.
absl::StatusOr<int64_t> CopyFileRange(int from_fd, int to_fd, int64_t offset, int64_t length,
                                      absl::string_view shown);

// The part of it that needs Linux: bytes the kernel copied by itself. Fewer than there are, 0
// included, mean that the rest is to be copied by hand.
int64_t CopyInKernel(int from_fd, int to_fd, int64_t offset, int64_t length);

// The same into a pipe or socket, waiting for its reader. Errors are met again by hand, too.
int64_t SendInKernel(int from_fd, int to_fd, int64_t offset, int64_t length);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FILES_COPY_FILE_H_
