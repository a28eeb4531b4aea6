#include "client/transfer/sftp_part.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr size_t kHashBytes = 32;

// Reads `length` bytes of `fd` at `offset`; fewer when it ends before.
absl::StatusOr<std::string> ReadAt(int fd, int64_t offset, int64_t length,
                                   const std::string& shown) {
  std::string bytes(static_cast<size_t>(length), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = pread(fd, bytes.data() + done, bytes.size() - done,
                              static_cast<off_t>(offset + static_cast<int64_t>(done)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, absl::StrCat("read ", shown));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

}  // namespace

absl::StatusOr<SftpPart> SftpPart::Open(const std::string& path, int64_t size) {
  SftpPart part(path, size);
  part.fd_.reset(file_ops::Open(path, O_RDWR | O_CREAT, 0600));
  if (!part.fd_.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
  const std::string blocks = absl::StrCat(path, ".blocks");
  part.blocks_.reset(file_ops::Open(blocks, O_RDWR | O_CREAT, 0600));
  if (!part.blocks_.valid()) return ErrnoStatus(errno, absl::StrCat("open ", blocks));
  RETURN_IF_ERROR(part.Check());
  return part;
}

absl::Status SftpPart::Check() {
  int64_t good = 0;
  while (offset_ < size_) {
    const int64_t length = std::min(kSftpBlockBytes, size_ - offset_);
    ASSIGN_OR_RETURN(const std::string hash,
                     ReadAt(blocks_.get(), good * int64_t{kHashBytes}, kHashBytes, path_));
    if (hash.size() < kHashBytes) break;
    ASSIGN_OR_RETURN(const std::string bytes, ReadAt(fd_.get(), offset_, length, path_));
    if (static_cast<int64_t>(bytes.size()) < length || Sha256Of(bytes) != hash) break;
    ++good;
    offset_ += length;
  }
  const off_t end = static_cast<off_t>(good * int64_t{kHashBytes});
  if (file_ops::Truncate(fd_.get(), static_cast<off_t>(offset_)) != 0 ||
      file_ops::Truncate(blocks_.get(), end) != 0 || lseek(blocks_.get(), end, SEEK_SET) < 0 ||
      lseek(fd_.get(), static_cast<off_t>(offset_), SEEK_SET) < 0) {
    return ErrnoStatus(errno, absl::StrCat("go on with ", path_));
  }
  return absl::OkStatus();
}

absl::Status SftpPart::Append(absl::string_view bytes) {
  while (!bytes.empty()) {
    const int64_t to_end = kSftpBlockBytes - offset_ % kSftpBlockBytes;
    const absl::string_view now = bytes.substr(0, static_cast<size_t>(to_end));
    RETURN_IF_ERROR(WriteAll(fd_.get(), now, path_));
    hash_.Update(now);
    offset_ += static_cast<int64_t>(now.size());
    bytes.remove_prefix(now.size());
    if (offset_ % kSftpBlockBytes == 0 || offset_ == size_) RETURN_IF_ERROR(EndBlock());
  }
  return absl::OkStatus();
}

absl::Status SftpPart::EndBlock() {
  const std::string hash = hash_.Finish();
  return WriteAll(blocks_.get(), hash, absl::StrCat(path_, ".blocks"));
}

absl::Status SftpPart::Finish() {
  if (file_ops::DataSync(fd_.get()) != 0) return ErrnoStatus(errno, absl::StrCat("sync ", path_));
  return absl::OkStatus();
}

}  // namespace gpuctl
