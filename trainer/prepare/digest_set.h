// Which rows have been seen: 16 bytes for each, in a table of twice or four times that size.

#ifndef TRAINER_PREPARE_DIGEST_SET_H_
#define TRAINER_PREPARE_DIGEST_SET_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gpuctl::trainer {

// The first half of a SHA-256.
using RowDigest = std::array<uint64_t, 2>;

// Not thread-safe.
class DigestSet {
 public:
  // Returns false if it was there already.
  bool Insert(RowDigest digest) {
    if (digest == kEmpty) digest[0] = 1;
    if (2 * size_ >= slots_.size()) Grow();
    RowDigest& slot = Find(digest);
    if (slot == digest) return false;
    slot = digest;
    ++size_;
    return true;
  }

 private:
  static constexpr RowDigest kEmpty = {0, 0};

  RowDigest& Find(const RowDigest& digest) {
    size_t at = digest[1] & (slots_.size() - 1);
    while (slots_[at] != kEmpty && slots_[at] != digest) at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
  }

  void Grow() {
    std::vector<RowDigest> old(slots_.empty() ? 1024 : 2 * slots_.size(), kEmpty);
    std::swap(old, slots_);
    for (const RowDigest& digest : old) {
      if (digest != kEmpty) Find(digest) = digest;
    }
  }

  std::vector<RowDigest> slots_;
  size_t size_ = 0;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_PREPARE_DIGEST_SET_H_
