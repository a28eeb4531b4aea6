// Rows to tokens: what prepared.h calls words, ids with a bit for those that are learned.

#ifndef TRAINER_PREPARE_ROW_ENCODER_H_
#define TRAINER_PREPARE_ROW_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/chat/chat_template.h"
#include "trainer/prepare/row.h"
#include "trainer/tokenizer/tokenizer.h"

namespace gpuctl::trainer {

// What is learned of a conversation: the assistant's turns, the last one of them, or all.
enum class Mask { kAssistant, kLast, kAll };

// One row, the pieces of a document, or the two rows of a pair.
struct EncodedRow {
  std::vector<uint32_t> words;
  std::vector<size_t> ends;  // of each piece in `words`
  int64_t dropped = 0;       // tokens behind the context
};

// Immutable and thread-safe. A thread needs 2 MiB of stack.
class RowEncoder {
 public:
  // Reads tokenizer.json, tokenizer_config.json and the chat template of a model's folder;
  // `template_file`, if it is not "", is read instead of the latter. Rows get `context` + 1 tokens
  // at most. Throws Error(kBadData). A folder without a template is an error only for
  // conversations.
  RowEncoder(const std::string& folder, const std::string& template_file, Mask mask,
             int64_t context);

  // Encodes a row. The text is cut where learned text begins and ends, and the parts are encoded
  // each for itself: so the model learns to answer behind the tokens that a prompt has when the
  // model is asked. A longer row is cut off at its end, a document into pieces that overlap by one
  // token. Throws Error(kBadData) without a place: the template or the tokenizer refuses the row,
  // or nothing is left to learn; of a pair, also if both answers are left alike, or the template
  // writes two prompts. In a pair the answers alone are learned.
  EncodedRow Encode(const Row& row) const;

  // Encodes a piece of a document: the first one, the last one, both or neither. What goes on with
  // a document before it has one token less in its first row, for the last token of the former.
  EncodedRow EncodeDocument(const std::string& text, bool first, bool last) const;

  // Returns the tokens of a prompt that waits for its continuation, or of a message that waits for
  // an answer: those that a row has before what is learned. Throws Error(kBadData).
  std::vector<int32_t> EncodePrompt(const std::string& text, bool chat) const;
  // The token that ends a document, if there is one.
  std::optional<int32_t> end() const { return end_; }

  // Without a template no conversation can be encoded, whatever it says.
  bool has_template() const { return template_.has_value(); }
  // Whether a document ends with a token that says so.
  bool ends_documents() const { return end_.has_value(); }
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  EncodedRow EncodeOne(const Row& row) const;
  EncodedRow EncodePair(const Row& row) const;
  EncodedRow EncodeChat(const Row& row) const;
  EncodedRow EncodeCompletion(const Row& row) const;
  void AddBefore(const std::vector<int32_t>& ids, std::vector<uint32_t>* words) const;
  void AddBehind(std::vector<uint32_t>* words) const;
  void CutOff(EncodedRow* row) const;

  const Tokenizer tokenizer_;
  const Mask mask_;
  const size_t most_;  // tokens of a row
  std::optional<ChatTemplate> template_;
  std::optional<Error> no_template_;
  std::optional<int32_t> end_;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_PREPARE_ROW_ENCODER_H_
