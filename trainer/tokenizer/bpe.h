// The "model" of tokenizer.json: byte pair encoding. A piece of text begins as its characters, and
// the pair that comes first in the list of merges is joined until none is left.
//
// Source of the format and of what happens to unknown characters: the tokenizers library of Hugging
// Face, version 0.22.

#ifndef TRAINER_TOKENIZER_BPE_H_
#define TRAINER_TOKENIZER_BPE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/base/json_at.h"
#include "trainer/tokenizer/piece_cache.h"

namespace gpuctl::trainer {

// The list of merges as a table: two ids to a rank and the id of both together.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };
  static constexpr uint32_t kNoRank = 0xffffffff;

  // Makes room for `count` pairs.
  explicit MergeTable(size_t count = 0);
  // A pair that is there already gets the new rank.
  void Set(int32_t left, int32_t right, Merge merge);
  // Returns kNoRank for a pair that never merges.
  Merge Find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t pair;
    Merge merge;
  };
  size_t Place(uint64_t pair) const;

  std::vector<Slot> slots_;
};

// What a thread needs to encode. One thread at a time uses it.
struct BpeScratch {
  PieceCache cache;
  std::vector<int32_t> ids;
  std::vector<MergeTable::Merge> merges;  // of the symbol with the next one
  std::vector<uint32_t> next;
  std::vector<uint32_t> previous;
  std::vector<uint64_t> heap;
  std::string letters;
};

// Immutable and thread-safe.
class Bpe {
 public:
  static constexpr int32_t kMaxId = (1 << 21) - 1;

  // `byte_level`: pieces come as bytes, and the vocabulary has them in the alphabet of ByteLevel.
  // Throws Error(kBadData): another model (Unigram, WordPiece, WordLevel), an option that is not
  // supported, a merge of tokens that are not in the vocabulary, an id twice or above kMaxId.
  static Bpe Read(const JsonAt& json, bool byte_level);

  Bpe(Bpe&&) = default;
  Bpe& operator=(Bpe&&) = default;

  // Appends the ids of a piece. Throws Error(kBadData) when the piece needs an unk_token that the
  // vocabulary lacks.
  void Encode(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>* ids) const;

  std::optional<int32_t> Find(std::string_view token) const;
  // Returns null for an id without a token.
  const std::string* Token(int32_t id) const;
  int32_t size() const { return static_cast<int32_t>(token_count_); }
  int32_t id_end() const { return static_cast<int32_t>(tokens_.size()); }

 private:
  static constexpr int32_t kNone = -1;

  Bpe() = default;
  void ReadVocabulary(const JsonAt& json);
  void ReadMerges(const JsonAt& json);
  void AddMerge(const std::string& left, const std::string& right, size_t number,
                const JsonAt& json);
  void ReadUnknown(const JsonAt& json);
  bool IsStandIn(int32_t id) const;
  void FindCuts(const std::string& token);
  void MakeTables();
  bool IsCut(std::string_view text, size_t at) const;
  void EncodeWord(std::string_view word, BpeScratch& scratch, std::vector<int32_t>* ids) const;
  void AddSymbols(std::string_view word, std::vector<int32_t>* ids) const;
  int32_t IdOfUnknown() const;
  void MergeShort(BpeScratch& scratch) const;
  void MergeLong(BpeScratch& scratch) const;

  bool byte_level_ = false;
  bool ignore_merges_ = false;
  bool fuse_unk_ = false;
  std::optional<std::string> unk_token_;
  std::optional<int32_t> unk_id_;
  size_t token_count_ = 0;
  std::vector<std::optional<std::string>> tokens_;
  std::unordered_map<std::string_view, int32_t> ids_;  // the keys lie in tokens_
  MergeTable merges_;
  std::vector<int32_t> id_of_character_;
  std::array<int32_t, 256> id_of_byte_;      // in the alphabet of ByteLevel
  std::array<int32_t, 256> id_of_fallback_;  // <0x00> to <0xFF>
  bool byte_fallback_ = false;
  // Where a text without pre-tokenizer may be cut: see IsCut.
  bool cuts_ = false;
  std::vector<uint32_t> no_cut_behind_;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_TOKENIZER_BPE_H_
