// Reading files that somebody else may have made or swapped, and the room on a disk.
#ifndef GPUCTL_COMMON_FILES_REGULAR_FILE_H_
#define GPUCTL_COMMON_FILES_REGULAR_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// Opens the file `relative` below the directory `dir` for reading. Follows no symlink below `dir`,
// and never waits: FAILED_PRECONDITION for a symlink, a device, a FIFO or a directory.
absl::StatusOr<UniqueFd> OpenRegularFile(const std::string& dir, const std::string& relative);

// Returns the bytes of such a file. RESOURCE_EXHAUSTED when it has more than `max_bytes`.
absl::StatusOr<std::string> ReadRegularFile(const std::string& dir, const std::string& relative,
                                            int64_t max_bytes);

// Returns the hex sha256 of such a file. DATA_LOSS when it has not `size` bytes; at most these are
// read.
absl::StatusOr<std::string> Sha256HexOfRegularFile(const std::string& dir,
                                                   const std::string& relative, int64_t size);

// Returns the bytes that this user may still write to the disk of `path`, which exists; -1 when
// that is unknown.
int64_t FreeBytes(const std::string& path);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FILES_REGULAR_FILE_H_
