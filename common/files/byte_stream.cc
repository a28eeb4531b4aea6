#include "common/files/byte_stream.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/files/copy_file.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr size_t kStreamReadBytes = 256 << 10;

absl::Status PeerGone(int error_number) {
  return absl::UnavailableError(absl::StrCat("transfer: ", strerror(error_number)));
}

}  // namespace

absl::Status ByteStream::SendFile(int fd, int64_t offset, int64_t size) {
  absl::Status read_status;
  ByteBuffer buffer;
  while (size > 0) {
    const size_t wanted = static_cast<size_t>(std::min<int64_t>(size, kStreamReadBytes));
    char* const begin = buffer.Prepare(wanted);
    ssize_t got = read_status.ok() ? pread(fd, begin, wanted, offset) : 0;
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      read_status.Update(got < 0 ? ErrnoStatus(errno, "read")
                                 : absl::AbortedError("it became shorter"));
      memset(begin, 0, wanted);
      got = static_cast<ssize_t>(wanted);
    }
    buffer.Commit(static_cast<size_t>(got));
    RETURN_IF_ERROR(Send(buffer));
    offset += got;
    size -= got;
  }
  return read_status;
}

// Uses plain read and write: the bytes do not go to a disk, so no file fault is injected here.
absl::Status FdStream::Receive(ByteBuffer& into) {
  char* const begin = into.Prepare(kStreamReadBytes);
  ssize_t got = -1;
  do {
    got = read(read_fd_, begin, kStreamReadBytes);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return PeerGone(errno);
  if (got == 0) return absl::UnavailableError("transfer: the peer closed the stream");
  into.Commit(static_cast<size_t>(got));
  return absl::OkStatus();
}

absl::Status FdStream::Send(ByteBuffer& from) {
  while (from.size() > 0) {
    const ssize_t written = write(write_fd_, from.data(), from.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error_number = errno;
      from.Clear();
      return PeerGone(error_number);
    }
    from.RemovePrefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status FdStream::SendFile(int fd, int64_t offset, int64_t size) {
  const int64_t sent = SendInKernel(fd, write_fd_, offset, size);
  return ByteStream::SendFile(fd, offset + sent, size - sent);
}

}  // namespace gpuctl
