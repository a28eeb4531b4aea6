// The "decoder" of tokenizer.json: how tokens become text again.
//
// Supported: ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, Sequence. Others are refused
// by name. Source of the format: the tokenizers library of Hugging Face, version 0.22.
//
// Text comes out token by token. A part of it is held back while later tokens can still change it:
// the bytes of a code point that is not whole, a run of byte tokens, characters that may be
// stripped at the end.

#ifndef TRAINER_TOKENIZER_DECODER_H_
#define TRAINER_TOKENIZER_DECODER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "trainer/base/json_at.h"
#include "trainer/unicode/pattern.h"

namespace gpuctl::trainer {

// Immutable and thread-safe.
class Decoder {
 public:
  // What one decoding remembers between tokens.
  class State {
   public:
    explicit State(const Decoder& decoder);

   private:
    friend class Decoder;
    struct Step {
      std::string held;
      bool begun = false;
      size_t stripped = 0;
    };
    std::vector<Step> steps_;
    std::unique_ptr<PatternScratch> scratch_;
    std::string out_;
  };

  Decoder() = default;
  // Absent: tokens with spaces between them. Throws Error(kBadData).
  static Decoder Read(const std::optional<JsonAt>& json);

  // Takes the next token, and returns the text that is certain now.
  std::string Push(const std::string& token, State* state) const;
  // Returns the rest. The state is at its end.
  std::string Finish(State* state) const;

 private:
  struct ByteLevel {};
  struct ByteFallback {};
  // `hold`: until the end, because a later step looks at the whole.
  struct Fuse {
    bool hold;
  };
  struct Spaces {};  // between tokens
  struct Metaspace {
    std::string replacement;
    bool drop_first;  // in the first token
  };
  struct Replace {
    Pattern pattern;
    std::string with;
  };
  struct Strip {
    std::string character;
    size_t start;
    size_t stop;
  };
  using Step = std::variant<ByteLevel, ByteFallback, Fuse, Spaces, Metaspace, Replace, Strip>;

  void Add(const JsonAt& json, int depth);
  void FindFused();
  // Gives step `index` a text. `begins`: of a new token; otherwise of the one before.
  void Give(size_t index, const std::string& text, bool begins, State* state) const;
  void End(size_t index, State* state) const;
  void GiveBytes(size_t index, const std::string& token, State* state) const;
  void FlushBytes(size_t index, State* state) const;
  void GiveStrip(const Strip& strip, size_t index, const std::string& text, bool begins,
                 State* state) const;
  std::vector<Step> steps_;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_TOKENIZER_DECODER_H_
