#include "common/files/copy_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {

namespace {

// Copies `length` bytes, zeros too, and returns their number: fewer when the file ends before.
absl::StatusOr<int64_t> CopyData(int from_fd, int to_fd, int64_t offset, int64_t length,
                                 absl::string_view shown) {
  int64_t copied = CopyInKernel(from_fd, to_fd, offset, length);
  std::vector<char> buffer(copied < length ? 1 << 18 : 0);
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

// Returns the offset of the first data at or after `offset`, at most `end`. Returns `offset` where
// the file system does not tell.
int64_t DataBegin(int fd, int64_t offset, int64_t end) {
  const off_t data = lseek(fd, static_cast<off_t>(offset), SEEK_DATA);
  if (data < 0) return errno == ENXIO ? end : offset;
  return std::min(int64_t{data}, end);
}

int64_t DataEnd(int fd, int64_t offset, int64_t end) {
  const off_t hole = lseek(fd, static_cast<off_t>(offset), SEEK_HOLE);
  return hole > static_cast<off_t>(offset) ? std::min(int64_t{hole}, end) : end;
}

}  // namespace

absl::StatusOr<int64_t> CopyFileRange(int from_fd, int to_fd, int64_t offset, int64_t length,
                                      absl::string_view shown) {
  struct stat from {};
  if (file_ops::Fault(file_ops::Op::kWrite, std::string(shown)) != 0 ||
      fstat(from_fd, &from) != 0) {
    return ErrnoStatus(errno, absl::StrCat("copy ", shown));
  }
  const int64_t end = std::max(offset, std::min(int64_t{from.st_size} - offset, length) + offset);
  for (int64_t at = offset; at < end;) {
    const int64_t data = DataBegin(from_fd, at, end);
    // The target has this hole already.
    if (data > at && DataBegin(to_fd, at, data) == data) {
      at = data;
      continue;
    }
    const int64_t stop = data > at ? data : DataEnd(from_fd, at, end);
    ASSIGN_OR_RETURN(const int64_t copied, CopyData(from_fd, to_fd, at, stop - at, shown));
    at += copied;
    if (at < stop) return at - offset;
  }
  // A hole at the end needs only the right file size.
  struct stat to {};
  if (fstat(to_fd, &to) != 0 ||
      (int64_t{to.st_size} < end && file_ops::Truncate(to_fd, end) != 0)) {
    return ErrnoStatus(errno, absl::StrCat("write ", shown));
  }
  return end - offset;
}

absl::StatusOr<int64_t> CopyFileContent(int from_fd, int to_fd, absl::string_view shown) {
  return CopyFileRange(from_fd, to_fd, 0, std::numeric_limits<int64_t>::max(), shown);
}

}  // namespace gpuctl
