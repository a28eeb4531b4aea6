// The "normalizer" of tokenizer.json: what happens to a text before it is split.
//
// Supported: NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip, Sequence. Others are refused
// by name. Source of the format: the tokenizers library of Hugging Face, version 0.22.

#ifndef TRAINER_TOKENIZER_NORMALIZER_H_
#define TRAINER_TOKENIZER_NORMALIZER_H_

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "trainer/base/json_at.h"
#include "trainer/unicode/normal_form.h"
#include "trainer/unicode/pattern.h"

namespace gpuctl::trainer {

// Reads {"String": …} or {"Regex": …}. Throws Error(kBadData).
Pattern ReadPattern(const JsonAt& json);

// Immutable and thread-safe.
class Normalizer {
 public:
  Normalizer() = default;
  // Absent: no step. Throws Error(kBadData).
  static Normalizer Read(const std::optional<JsonAt>& json);

  bool empty() const { return steps_.empty(); }
  // Returns the normal form of `text`, which must be valid UTF-8. `within`: what stands before the
  // text belongs to it, so that nothing is put before it or stripped there.
  std::string Apply(std::string text, bool within, PatternScratch& scratch) const;

 private:
  struct LowerCase {};
  struct Prepend {
    std::string text;
  };
  struct Replace {
    Pattern pattern;
    std::string with;
  };
  struct Strip {
    bool left;
    bool right;
  };
  using Step = std::variant<NormalForm, LowerCase, Prepend, Replace, Strip>;

  void Add(const JsonAt& json, int depth);

  std::vector<Step> steps_;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_TOKENIZER_NORMALIZER_H_
