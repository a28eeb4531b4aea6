#ifndef GPUCTL_COMMON_BASE_BYTE_BUFFER_H_
#define GPUCTL_COMMON_BASE_BYTE_BUFFER_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/string_view.h"

namespace gpuctl {

// A buffer of bytes: they come in at one end and go out at the other. Unlike std::string it does
// not zero new room, which would cost one more pass over all transferred bytes.
class ByteBuffer {
 public:
  size_t size() const { return end_ - begin_; }
  char* data() { return bytes_.get() + begin_; }
  absl::string_view view() const { return {bytes_.get() + begin_, size()}; }

  // Returns room for `count` bytes behind the stored ones, valid until the next call. Commit takes
  // what was written; the rest stays unused.
  char* Prepare(size_t count) {
    if (capacity_ - end_ < count) Compact(count);
    return bytes_.get() + end_;
  }
  void Commit(size_t count) { end_ += count; }
  void RemovePrefix(size_t count) {
    begin_ += count;
    if (begin_ == end_) begin_ = end_ = 0;
  }
  void Clear() { begin_ = end_ = 0; }
  // Clears, and keeps room for `count` bytes that Prepend can put before the next ones.
  void ClearForPrepend(size_t count) {
    if (capacity_ < count) {
      bytes_.reset(new char[2 * count]);
      capacity_ = 2 * count;
    }
    begin_ = end_ = count;
  }
  // Puts bytes before the stored ones.
  void Prepend(absl::string_view bytes) {
    if (begin_ < bytes.size()) MakeRoomBefore(bytes.size());
    begin_ -= bytes.size();
    memcpy(data(), bytes.data(), bytes.size());
  }
  void Swap(ByteBuffer& other) {
    std::swap(bytes_, other.bytes_);
    std::swap(capacity_, other.capacity_);
    std::swap(begin_, other.begin_);
    std::swap(end_, other.end_);
  }

 private:
  void Compact(size_t count) {
    const size_t kept = size();
    if (capacity_ < kept + count) {
      const size_t capacity = std::max(kept + count, 2 * capacity_);
      std::unique_ptr<char[]> bytes(new char[capacity]);
      if (kept > 0) memcpy(bytes.get(), data(), kept);
      bytes_ = std::move(bytes);
      capacity_ = capacity;
    } else if (kept > 0) {
      memmove(bytes_.get(), data(), kept);
    }
    begin_ = 0;
    end_ = kept;
  }

  void MakeRoomBefore(size_t count) {
    const size_t kept = size();
    if (capacity_ - kept < count) {
      ByteBuffer larger;
      memcpy(larger.Prepare(2 * (count + kept)) + count, data(), kept);
      larger.begin_ = count;
      larger.end_ = count + kept;
      Swap(larger);
      return;
    }
    memmove(bytes_.get() + count, data(), kept);
    begin_ = count;
    end_ = count + kept;
  }

  std::unique_ptr<char[]> bytes_;
  size_t capacity_ = 0;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BASE_BYTE_BUFFER_H_
