#include "common/copy_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace gpuctl {

absl::StatusOr<int64_t> CopyFileRange(int from_fd, int to_fd, int64_t offset, int64_t length,
                                      absl::string_view shown) {
  if (file_ops::Fault(file_ops::Op::kWrite, std::string(shown)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("copy ", shown));
  }
  int64_t copied = CopyInKernel(from_fd, to_fd, offset, length);
  std::vector<char> buffer(1 << 18);
  while (copied < length) {
    const auto wanted = static_cast<size_t>(
        std::min<int64_t>(length - copied, static_cast<int64_t>(buffer.size())));
    const ssize_t got = pread(from_fd, buffer.data(), wanted, offset + copied);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, absl::StrCat("read ", shown));
    if (got == 0) return copied;
    ssize_t done = 0;
    while (done < got) {
      const ssize_t written = file_ops::PWrite(
          to_fd, buffer.data() + done, static_cast<size_t>(got - done), offset + copied + done);
      if (written < 0) return ErrnoStatus(errno, absl::StrCat("write ", shown));
      done += written;
    }
    copied += got;
  }
  return copied;
}

absl::StatusOr<int64_t> CopyFileContent(int from_fd, int to_fd, absl::string_view shown) {
  return CopyFileRange(from_fd, to_fd, 0, std::numeric_limits<int64_t>::max(), shown);
}

}  // namespace gpuctl
