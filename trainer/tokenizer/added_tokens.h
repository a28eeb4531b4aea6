// The "added_tokens" of tokenizer.json: tokens that are found in the text itself, before BPE sees
// it. Those with "normalized": false are looked for in the text as it came, the others in its
// normal form. Where several begin at one place the longest counts.
//
// Source of the format and of its order of steps: the tokenizers library of Hugging Face, version
// 0.22.

#ifndef TRAINER_TOKENIZER_ADDED_TOKENS_H_
#define TRAINER_TOKENIZER_ADDED_TOKENS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/base/json_at.h"
#include "trainer/tokenizer/bpe.h"
#include "trainer/tokenizer/normalizer.h"

namespace gpuctl::trainer {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and behind it
  bool normalized = false;
  bool special = false;  // left out when ids are decoded without special tokens
};

// A stretch of the text: a token, or text between tokens.
struct Stretch {
  size_t begin;
  size_t end;
  std::optional<int32_t> id;
};

// Finds the longest of many texts, at each place.
class TextFinder {
 public:
  TextFinder();
  // `number` is what Longest returns. The first one with the same text stays.
  void Add(const std::string& text, int32_t number);
  // Returns the number of the longest text that begins at `at`, and its length; -1: none.
  int32_t Longest(std::string_view text, size_t at, size_t* length) const;
  bool empty() const { return nodes_.size() == 1; }
  // Whether a text begins with this byte.
  bool Begins(char byte) const { return begins_[static_cast<unsigned char>(byte)]; }

 private:
  struct Node {
    std::vector<std::pair<unsigned char, int32_t>> next;  // by byte, sorted
    int32_t number = -1;
  };
  std::vector<Node> nodes_;
  std::array<bool, 256> begins_ = {};
};

// Immutable after Read, and thread-safe.
class AddedTokens {
 public:
  // Throws Error(kBadData), also when an id is not the one that Hugging Face's library would give.
  static AddedTokens Read(const std::optional<JsonAt>& json, const Bpe& bpe,
                          const Normalizer& normalizer);

  // Splits `text` at the tokens that are looked for in it as it came (false), or in its normal form
  // (true). Without any, that is the whole text.
  std::vector<Stretch> Split(std::string_view text, bool normalized, PatternScratch& scratch) const;

  const AddedToken* Find(int32_t id) const;
  std::optional<int32_t> Id(std::string_view content) const;
  bool IsSpecial(std::string_view content) const;
  const std::map<int32_t, AddedToken>& all() const { return by_id_; }

 private:
  void Add(const JsonAt& json, const Bpe& bpe);
  bool TouchesWord(std::string_view text, size_t begin, size_t end, PatternScratch& scratch) const;

  std::map<int32_t, AddedToken> by_id_;
  std::map<std::string, int32_t, std::less<>> id_of_;
  std::map<std::string, bool, std::less<>> special_;
  TextFinder as_it_came_;
  TextFinder normal_;
  std::optional<Pattern> word_;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_TOKENIZER_ADDED_TOKENS_H_
