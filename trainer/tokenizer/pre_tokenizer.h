// The "pre_tokenizer" of tokenizer.json: how a text is split into the pieces that BPE merges, each
// for itself.
//
// Supported: ByteLevel, Split, Digits, Metaspace, Whitespace, WhitespaceSplit, Punctuation,
// Sequence. Others are refused by name. Source of the format: the tokenizers library of Hugging
// Face, version 0.22.

#ifndef TRAINER_TOKENIZER_PRE_TOKENIZER_H_
#define TRAINER_TOKENIZER_PRE_TOKENIZER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "trainer/base/json_at.h"
#include "trainer/unicode/pattern.h"

namespace gpuctl::trainer {

// What the beginning of a stretch of text is.
enum class Beginning {
  kOfText,  // the beginning of what was encoded
  kOfWord,  // a word begins there: behind an added token
  kWithin,  // what stands before belongs to it: no prefix is put before it
};

// A text and the pieces of it. Pieces are in order and none is empty.
struct PieceList {
  struct Piece {
    uint32_t begin;
    uint32_t end;
  };
  std::string text;
  std::vector<Piece> pieces;
  Beginning beginning = Beginning::kOfText;
};

// What becomes of a match: see the library's SplitDelimiterBehavior.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Immutable and thread-safe.
class PreTokenizer {
 public:
  PreTokenizer() = default;
  // Absent: one piece. Throws Error(kBadData).
  static PreTokenizer Read(const std::optional<JsonAt>& json);

  // Whether BPE gets the pieces as bytes, which its vocabulary names in the alphabet of ByteLevel.
  bool byte_level() const { return byte_level_; }
  // Splits list->pieces, and changes list->text where a step adds or replaces characters.
  void Apply(PieceList* list, PatternScratch& scratch) const;

 private:
  struct Split {
    Pattern pattern;
    SplitBehavior behavior;
    bool invert;
  };
  enum class Prefix { kNever, kFirst, kAlways };
  struct Metaspace {
    std::string replacement;
    Prefix prefix;
  };
  struct PrefixSpace {};
  struct ByteLetters {};  // writes bytes in the alphabet of ByteLevel
  using Step = std::variant<Split, Metaspace, PrefixSpace, ByteLetters>;

  void Add(const JsonAt& json, int depth);
  void AddSplit(const JsonAt& json);
  void AddMetaspace(const JsonAt& json);
  void AddByteLevel(const JsonAt& json);
  static void Apply(const Split& split, PieceList* list, PatternScratch& scratch);
  static void Apply(const Metaspace& metaspace, PieceList* list);

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_TOKENIZER_PRE_TOKENIZER_H_
