#include "common/copy_file.h"

#include <unistd.h>

#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace gpuctl {

absl::StatusOr<int64_t> CopyFileContent(int from_fd, int to_fd, absl::string_view shown) {
  if (file_ops::Fault(file_ops::Op::kWrite, std::string(shown)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("copy ", shown));
  }
  int64_t copied = CopyInKernel(from_fd, to_fd);
  std::vector<char> buffer(1 << 18);
  while (true) {
    const ssize_t got = pread(from_fd, buffer.data(), buffer.size(), copied);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, absl::StrCat("read ", shown));
    if (got == 0) return copied;
    ssize_t done = 0;
    while (done < got) {
      const ssize_t written = file_ops::PWrite(to_fd, buffer.data() + done,
                                               static_cast<size_t>(got - done), copied + done);
      if (written < 0) return ErrnoStatus(errno, absl::StrCat("write ", shown));
      done += written;
    }
    copied += got;
  }
}

}  // namespace gpuctl
