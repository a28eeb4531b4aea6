#include "common/byte_stream.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace gpuctl {
namespace {

constexpr size_t kReadBytes = 256 << 10;

absl::Status PeerGone(int error_number) {
  return absl::UnavailableError(absl::StrCat("transfer: ", strerror(error_number)));
}

}  // namespace

// Plain read and write: the bytes come from a peer and go to one, not to a disk, so no file fault
// is injected here.
absl::Status FdStream::Receive(ByteBuffer& into) {
  char* const begin = into.Prepare(kReadBytes);
  ssize_t got = -1;
  do {
    got = read(read_fd_, begin, kReadBytes);
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

}  // namespace gpuctl
