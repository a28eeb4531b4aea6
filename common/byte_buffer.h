#ifndef GPUCTL_COMMON_BYTE_BUFFER_H_
#define GPUCTL_COMMON_BYTE_BUFFER_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/string_view.h"

namespace gpuctl {

// Bytes that come in at one end and go out at the other. Unlike a std::string it does not clear the
// room it makes, which would be one more pass over all that is transferred.
class ByteBuffer {
 public:
  size_t size() const { return end_ - begin_; }
  char* data() { return bytes_.get() + begin_; }
  absl::string_view view() const { return {bytes_.get() + begin_, size()}; }

  // Room for `count` bytes behind those there are; what Commit does not take stays unused. Valid
  // until the next call.
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

  std::unique_ptr<char[]> bytes_;
  size_t capacity_ = 0;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BYTE_BUFFER_H_
