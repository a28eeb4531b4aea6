// A bounded memory of what short pieces of text become. Most words of a text were seen before.

#ifndef TRAINER_TOKENIZER_PIECE_CACHE_H_
#define TRAINER_TOKENIZER_PIECE_CACHE_H_

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace gpuctl::trainer {

// Returns a hash of a few bytes; fast, and no defence against texts that are made to collide.
inline uint64_t HashBytes(std::string_view bytes) {
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15;
  uint64_t hash = bytes.size() * kFactor;
  const char* next = bytes.data();
  size_t left = bytes.size();
  uint64_t word;
  for (; left >= sizeof(word); left -= sizeof(word), next += sizeof(word)) {
    std::memcpy(&word, next, sizeof(word));
    hash = (hash ^ word) * kFactor;
    hash ^= hash >> 29;
  }
  word = 0;
  if (left > 0) std::memcpy(&word, next, left);
  hash = (hash ^ word) * kFactor;
  return hash ^ hash >> 32;
}

// One place per hash; a newer piece takes the place of an older one. One thread at a time uses it.
class PieceCache {
 public:
  PieceCache() : slots_(kSlots) {}

  // Appends the ids of the piece and returns true when it is known.
  bool Find(std::string_view piece, uint64_t hash, std::vector<int32_t>* ids) const {
    const Slot& slot = slots_[hash % kSlots];
    if (slot.bytes != piece.size() || piece.empty() ||
        std::memcmp(slot.text, piece.data(), piece.size()) != 0) {
      return false;
    }
    ids->insert(ids->end(), slot.ids, slot.ids + slot.count);
    return true;
  }

  // Keeps it unless it is too long.
  void Keep(std::string_view piece, uint64_t hash, const int32_t* ids, size_t count) {
    if (piece.size() > kMaxBytes || count > kMaxIds) return;
    Slot& slot = slots_[hash % kSlots];
    slot.bytes = static_cast<uint8_t>(piece.size());
    slot.count = static_cast<uint8_t>(count);
    std::memcpy(slot.text, piece.data(), piece.size());
    if (count > 0) std::memcpy(slot.ids, ids, count * sizeof(*ids));
  }

  static constexpr size_t kMaxBytes = 30;

 private:
  static constexpr size_t kSlots = 1 << 14;  // 1 MiB
  static constexpr size_t kMaxIds = 8;
  struct Slot {
    uint8_t bytes = 0;  // 0: empty
    uint8_t count = 0;
    char text[kMaxBytes];
    int32_t ids[kMaxIds];
  };
  static_assert(sizeof(Slot) == 64, "a slot is a cache line");
  std::vector<Slot> slots_;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_TOKENIZER_PIECE_CACHE_H_
