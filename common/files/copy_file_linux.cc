#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/files/copy_file.h"

namespace gpuctl {

bool CloneFile(int from_fd, int to_fd) { return ioctl(to_fd, FICLONE, from_fd) == 0; }

int64_t CopyInKernel(int from_fd, int to_fd, int64_t offset, int64_t length) {
  constexpr int64_t kAtOnce = int64_t{1} << 30;
  int64_t copied = 0;
  while (copied < length) {
    // Explicit offsets leave the file positions alone, so that the copy by hand can follow.
    off_t from = offset + copied;
    off_t to = from;
    const ssize_t got = copy_file_range(from_fd, &from, to_fd, &to,
                                        static_cast<size_t>(std::min(kAtOnce, length - copied)), 0);
    if (got < 0 && errno == EINTR) continue;
    // It is not possible here (old kernel, two file systems), the file ended, or a real error
    // happened. The copy by hand meets that error again and reports it.
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
