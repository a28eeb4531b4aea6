// The chat template of a model: conversations to the text that the model was trained on, with the
// parts that the assistant wrote.

#ifndef TRAINER_CHAT_CHAT_TEMPLATE_H_
#define TRAINER_CHAT_CHAT_TEMPLATE_H_

#include <cstddef>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "trainer/jinja/template.h"

namespace gpuctl::trainer {

// Returns tokenizer_config.json of a model's folder, {} if there is none. Throws Error(kBadData).
nlohmann::json ReadTokenizerConfig(const std::string& folder);
// Returns a special token of it, such as "eos_token", which is a text or {"content": text}; "" if
// there is none.
std::string SpecialToken(const nlohmann::json& config, const std::string& name);

// One conversation, as data sets have it: objects keep the order of their keys, because templates
// print tools and arguments in it.
struct Conversation {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();  // of {"role", "content", …}
  nlohmann::ordered_json tools;                                       // an array, or null
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();  // more for the template
};

// Which of the assistant's turns are learned.
enum class Turns { kAll, kLast };

struct MaskedText {
  std::string text;
  // The bytes [begin, end) that are learned, in order: what the assistant says, with the token that
  // ends its turn.
  std::vector<std::pair<size_t, size_t>> learned;
};

// Throws Error(kBadData) where `text`, of a template, has a part of a message's content as Python
// prints objects: the template takes texts only.
void CheckNoListIsPrinted(const Conversation& conversation, const std::string& text);

// Immutable: threads may render at the same time. A thread needs 2 MiB of stack.
class ChatTemplate {
 public:
  // Reads the template of a model's folder in Hugging Face's layout: chat_template.jinja, else
  // "chat_template" of tokenizer_config.json, a text or a list of {"name", "template"}; and the
  // special tokens of the latter. Throws Error(kBadData) if there is none, or it is not supported.
  // `file`, if it is not "", is read instead of the folder's template.
  static ChatTemplate Load(const std::string& folder, const std::string& file = "");

  // `config` is tokenizer_config.json. `now` is what templates take for today.
  ChatTemplate(const std::string& name, const std::string& source, const nlohmann::json& config,
               std::time_t now);

  // Returns the text of the conversation and, on request, what begins an answer of the assistant.
  // Throws Error(kBadData).
  std::string Render(const Conversation& conversation, bool add_generation_prompt) const;

  // Returns the text with what is learned from it. The template's {% generation %} blocks tell
  // that. Without them, the assistant's turn is what a message adds to the text before it, so the
  // text of a beginning of the conversation must be a beginning of the text. Templates that change
  // earlier turns (Qwen3 drops their thoughts) have that only at the last turn. Throws
  // Error(kBadData) where it does not hold, and for a conversation without a turn to learn. Only
  // messages from number `first` on are learned; the others are the prompt of the first turn.
  MaskedText RenderMasked(const Conversation& conversation, Turns turns, size_t first = 0) const;

 private:
  jinja::Rendered RenderFirst(const Conversation& conversation, size_t messages,
                              bool add_generation_prompt) const;
  const jinja::Template& TemplateFor(const Conversation& conversation) const;
  std::pair<size_t, size_t> TurnOf(const Conversation& conversation, size_t message,
                                   const std::string& text) const;
  void DropPrompt(const Conversation& conversation, size_t first, MaskedText* masked) const;
  size_t EndOfTurn(const std::string& text, size_t begin, size_t end) const;

  void Add(const std::string& name, const std::string& file, const std::string& source);

  std::map<std::string, jinja::Template> templates_;  // "default", "tool_use"
  nlohmann::ordered_json special_tokens_ = nlohmann::ordered_json::object();
  std::string eos_token_;
  std::time_t now_ = 0;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_CHAT_CHAT_TEMPLATE_H_
