#include "common/files/part_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/files/sync_fs.h"

namespace gpuctl {
namespace {

// The size of one write: a disk needs large requests to be fast.
constexpr size_t kBlockBytes = 1 << 20;

}  // namespace

void PartWriter::Begin(int fd, int64_t offset, bool uncached, std::string shown) {
  fd_ = fd;
  offset_ = offset;
  used_ = 0;
  shown_ = std::move(shown);
  uncached_ = uncached && offset % kUncachedAlignment == 0;
  if (uncached_ && block_ == nullptr) {
    block_.reset(static_cast<char*>(std::aligned_alloc(kUncachedAlignment, kBlockBytes)));
  }
  uncached_ = uncached_ && block_ != nullptr;
}

absl::Status PartWriter::Append(absl::string_view bytes) {
  if (!uncached_ && used_ == 0) return Write(bytes);
  while (!bytes.empty()) {
    const size_t size = std::min(bytes.size(), kBlockBytes - used_);
    memcpy(block_.get() + used_, bytes.data(), size);
    used_ += size;
    bytes.remove_prefix(size);
    if (used_ == kBlockBytes) RETURN_IF_ERROR(WriteBlock(used_));
  }
  return absl::OkStatus();
}

absl::Status PartWriter::Flush() {
  const size_t whole = used_ - used_ % static_cast<size_t>(kUncachedAlignment);
  if (whole > 0) RETURN_IF_ERROR(WriteBlock(whole));
  const absl::string_view rest(block_.get(), used_);
  used_ = 0;
  return Write(rest);
}

// Writes the first `size` bytes of the block, a multiple of the alignment, and moves the rest to
// the front.
absl::Status PartWriter::WriteBlock(size_t size) {
  size_t written = 0;
  if (uncached_ && SetUncached(fd_, true)) {
    while (written < size) {
      const ssize_t got = file_ops::PWrite(fd_, block_.get() + written, size - written, offset_);
      const int error_number = errno;
      if (got < 0 && error_number != EINVAL) {
        SetUncached(fd_, false);
        return ErrnoStatus(error_number, absl::StrCat("write ", shown_));
      }
      if (got <= 0) break;  // this file system needs another alignment
      written += static_cast<size_t>(got);
      offset_ += got;
      if (got % kUncachedAlignment != 0) break;
    }
    SetUncached(fd_, false);
  }
  if (written < size) {
    uncached_ = false;
    RETURN_IF_ERROR(Write({block_.get() + written, size - written}));
  }
  memmove(block_.get(), block_.get() + size, used_ - size);
  used_ -= size;
  return absl::OkStatus();
}

absl::Status PartWriter::Write(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = file_ops::PWrite(fd_, bytes.data(), bytes.size(), offset_);
    if (written < 0) return ErrnoStatus(errno, absl::StrCat("write ", shown_));
    bytes.remove_prefix(static_cast<size_t>(written));
    offset_ += written;
  }
  return absl::OkStatus();
}

}  // namespace gpuctl
