#include <sys/sendfile.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/files/copy_file.h"

namespace gpuctl {

int64_t CopyInKernel(int from_fd, int to_fd, int64_t offset, int64_t length) {
  constexpr int64_t kAtOnce = int64_t{1} << 30;
  int64_t copied = 0;
  while (copied < length) {
    // With explicit offsets, so that what comes after needs no file position.
    off_t from = offset + copied;
    off_t to = from;
    const ssize_t got = copy_file_range(from_fd, &from, to_fd, &to,
                                        static_cast<size_t>(std::min(kAtOnce, length - copied)), 0);
    if (got < 0 && errno == EINTR) continue;
    // Not possible here (old kernel, two file systems), the end, or a real error, which the copy by
    // hand meets again and reports.
    if (got <= 0) return copied;
    copied += got;
  }
  return copied;
}

int64_t SendInKernel(int from_fd, int to_fd, int64_t offset, int64_t length) {
  auto at = static_cast<off_t>(offset);
  int64_t sent = 0;
  while (sent < length) {
    const ssize_t now = sendfile(to_fd, from_fd, &at, static_cast<size_t>(length - sent));
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return sent;
    sent += now;
  }
  return sent;
}

}  // namespace gpuctl
