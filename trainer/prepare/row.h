// A row of training data, as data sets have it.
//
//   {"messages": [{"role": …, "content": …}, …], "tools": […]}      a conversation
//   {"prompt": …, "completion": …}      texts, or lists of messages
//   {"conversations": [{"from": …, "value": …}, …]}      a conversation, as ShareGPT has it
//   {"text": …}      a document
//   {"prompt": …, "chosen": …, "rejected": …}      a pair: texts, or lists of messages
//   {"chosen": [messages], "rejected": [messages]}      a pair: conversations that begin alike
//
// The keys are those of TRL's data sets; other keys are not looked at.

#ifndef TRAINER_PREPARE_ROW_H_
#define TRAINER_PREPARE_ROW_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "trainer/chat/chat_template.h"

namespace gpuctl::trainer {

enum class RowKind { kMessages, kPromptCompletion, kConversations, kText, kPair };
constexpr size_t kRowKinds = 5;
// Returns the key that tells the kind: "messages", "prompt", "conversations", "text", "chosen".
const char* NameOf(RowKind kind);

struct Row {
  RowKind kind = RowKind::kText;
  bool is_chat = false;       // `conversation` counts, else `prompt` and `text`
  Conversation conversation;  //
  size_t first_learned = 0;   // messages before it are a prompt
  std::string prompt;         // what is not learned before `text`
  std::string text;           // a document or a completion
  // Of a pair, whose chosen answer is the rest of this: the same prompt with the rejected one.
  std::shared_ptr<const Row> rejected = nullptr;
};

// Reads a line of JSON. Throws Error(kBadData) that says what is wrong with it, without a place.
Row ParseRow(std::string_view line);

// Throws Error(kBadData) if a document, or a piece of one, is no text in UTF-8.
void CheckDocument(std::string_view text);

}  // namespace gpuctl::trainer

#endif  // TRAINER_PREPARE_ROW_H_
