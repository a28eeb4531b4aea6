#include <unistd.h>

#include <cerrno>

#include "common/copy_file.h"

namespace gpuctl {

int64_t CopyInKernel(int from_fd, int to_fd) {
  int64_t copied = 0;
  while (true) {
    // With explicit offsets, so that what comes after needs no file position.
    off_t from = copied;
    off_t to = copied;
    const ssize_t got = copy_file_range(from_fd, &from, to_fd, &to, size_t{1} << 30, 0);
    if (got < 0 && errno == EINTR) continue;
    // Not possible here (old kernel, two file systems), the end, or a real error, which the copy by
    // hand meets again and reports.
    if (got <= 0) return copied;
    copied += got;
  }
}

}  // namespace gpuctl
