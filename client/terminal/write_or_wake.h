// Writes to a file descriptor that may be slow: a terminal, a pipe.
#ifndef GPUCTL_CLIENT_TERMINAL_WRITE_OR_WAKE_H_
#define GPUCTL_CLIENT_TERMINAL_WRITE_OR_WAKE_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// Writes all of `text` to `fd`, a terminal, pipe or file. Stops when `wake_fd` becomes readable
// (-1: never). Returns the number of bytes written. UNAVAILABLE when the reader is gone.
absl::StatusOr<size_t> WriteOrWake(int fd, absl::string_view text, int wake_fd);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TERMINAL_WRITE_OR_WAKE_H_
