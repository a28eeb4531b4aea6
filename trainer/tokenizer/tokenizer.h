// Reads a tokenizer.json and turns text into ids and back, as Hugging Face's tokenizers library
// does.
//
// Every BPE tokenizer is read, byte-level (GPT-2, Llama 3, Qwen, DeepSeek) or with byte fallback
// (Llama 2, Mistral, Gemma). What is not supported is refused by name when the file is read: ids
// that are almost right would spoil a model without a word. Settings of a call, "truncation" and
// "padding", are not of the tokenizer, and are not looked at.
//
//   const Tokenizer tokenizer = Tokenizer::Load("tokenizer.json");
//   const std::vector<int32_t> ids = tokenizer.Encode("Hello world", /*add_special=*/true);
//   const std::string text = tokenizer.Decode(ids, /*skip_special=*/true);

#ifndef TRAINER_TOKENIZER_TOKENIZER_H_
#define TRAINER_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpuctl::trainer {

struct EncodedParts {
  std::vector<int32_t> ids;  // of all parts
  std::vector<size_t> ends;  // for each part, the end of its ids
};

// Immutable and thread-safe: threads encode at once with one Tokenizer. Each call borrows a cache
// of 1 MiB; there are as many as calls at one time.
class Tokenizer {
 public:
  static constexpr size_t kMaxTextBytes = size_t{1} << 30;

  // Throws Error(kBadData) that names the file, the place in it and what is wrong or not supported,
  // Error(kIo) when it cannot be read.
  static Tokenizer Load(const std::string& path);
  // Does the same for a document. The place is named, a file is not.
  static Tokenizer FromJson(const nlohmann::json& json);

  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // Returns the ids of a text. Bytes that are no valid UTF-8 count as U+FFFD. `add_special` adds
  // the tokens of the post-processor, such as the one that begins a text; tokens that are written
  // in the text are found in either case. Throws Error(kBadData) for a text above kMaxTextBytes,
  // and when a regular expression of the tokenizer gives up on it.
  std::vector<int32_t> Encode(std::string_view text, bool add_special) const;

  // Encodes the parts of a text between `cuts` (places in it, in bytes, in rising order) each for
  // itself, without special tokens, so that no token crosses a cut. A part is no beginning of a
  // text: it gets the prefix that some tokenizers put before a text only where Encode would put it,
  // behind an added token. Without tokens across a cut the ids are those of Encode; the ids before
  // the first cut are those of Encode for the text before it. Throws as Encode.
  EncodedParts EncodeParts(std::string_view text, const std::vector<size_t>& cuts) const;

  // Returns the ids of a text that goes on with one that was cut before it, as EncodeParts does.
  std::vector<int32_t> EncodeContinuation(std::string_view text) const;

  // Returns the tokens that `add_special` puts before and behind a text.
  const std::vector<int32_t>& TokensBefore() const;
  const std::vector<int32_t>& TokensBehind() const;

  // Returns the text of the ids, always valid UTF-8. An id without a token gives nothing.
  // `skip_special` leaves out the special tokens.
  std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const;

  // Returns the id of a token as tokenizer.json spells it.
  std::optional<int32_t> TokenId(std::string_view token) const;
  // Returns the token of an id.
  std::optional<std::string> Token(int32_t id) const;
  bool IsSpecial(int32_t id) const;
  // Returns the bytes that an id stands for behind and before others, "" for a special one or none:
  // together they are what Decode gives, but for spaces at the ends and what is no valid UTF-8.
  std::string BytesWithin(int32_t id) const;
  // Returns how many tokens there are.
  int32_t VocabularySize() const;
  // Returns one more than the highest id: a model needs that many rows at least.
  int32_t IdEnd() const;

 private:
  friend class StreamDecoder;
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);

  std::unique_ptr<const Parts> parts_;
};

// Decodes ids one by one, for text that is shown while it is made. What Push returned together with
// Finish is what Decode returns for all ids. Not thread-safe; the tokenizer must outlive it.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special);
  ~StreamDecoder();
  StreamDecoder(const StreamDecoder&) = delete;
  StreamDecoder& operator=(const StreamDecoder&) = delete;

  // Returns the text that is certain with this id: whole code points, possibly none.
  std::string Push(int32_t id);
  // Returns what was held back. Call it once, at the end.
  std::string Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_TOKENIZER_TOKENIZER_H_
