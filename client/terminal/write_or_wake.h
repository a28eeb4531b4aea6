// Writing to what may take its time: a terminal, a pipe.
#ifndef GPUCTL_CLIENT_TERMINAL_WRITE_OR_WAKE_H_
#define GPUCTL_CLIENT_TERMINAL_WRITE_OR_WAKE_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// Writes all of `text` to `fd`, a terminal, pipe or file, without ever blocking longer than until
// `wake_fd` becomes readable: then it returns how much was written. UNAVAILABLE when the reader is
// gone. Pass -1 to wait however long it takes.
absl::StatusOr<size_t> WriteOrWake(int fd, absl::string_view text, int wake_fd);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TERMINAL_WRITE_OR_WAKE_H_
