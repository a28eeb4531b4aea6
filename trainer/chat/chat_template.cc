#include "trainer/chat/chat_template.h"

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/json_object.h"

namespace gpuctl::trainer {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDefault = "default";
constexpr const char* kToolUse = "tool_use";
constexpr const char* kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

void CheckMessages(const Json& messages) {
  if (!messages.is_array()) throw DataError("messages is no list");
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    const bool good =
        message.is_object() && message.contains("role") && message.at("role").is_string();
    if (!good) throw DataError("message " + std::to_string(i + 1) + " has no role");
  }
}

bool IsAssistant(const Json& message) { return message.at("role") == "assistant"; }

bool BeginsWith(const std::string& text, const std::string& beginning) {
  return text.compare(0, beginning.size(), beginning) == 0;
}

}  // namespace

nlohmann::json ReadTokenizerConfig(const std::string& folder) {
  const std::string path = folder + "/tokenizer_config.json";
  if (!Exists(path)) return nlohmann::json::object();
  return ParseJsonObject(ReadWholeFile(path, kLargestSettings), "read " + path);
}

std::string SpecialToken(const nlohmann::json& config, const std::string& name) {
  const auto found = config.find(name);
  if (found == config.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_object()) return "";
  const auto content = found->find("content");
  return content != found->end() && content->is_string() ? content->get<std::string>() : "";
}

void CheckNoListIsPrinted(const Conversation& conversation, const std::string& text) {
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const auto content = conversation.messages[i].find("content");
    if (content == conversation.messages[i].end() || !content->is_array() || content->empty())
      continue;
    const bool printed = std::any_of(content->begin(), content->end(), [&text](const Json& part) {
      return text.find(jinja::PrintedObject(part)) != std::string::npos;
    });
    if (!printed) continue;
    throw DataError("message " + std::to_string(i + 1) +
                        ": its content is a list of parts, and the template writes it as a list, "
                        "brackets included",
                    "write \"content\" as one text");
  }
}

ChatTemplate ChatTemplate::Load(const std::string& folder, const std::string& named) {
  const std::string config_path = folder + "/tokenizer_config.json";
  const nlohmann::json config = ReadTokenizerConfig(folder);
  const std::string file = named.empty() ? folder + "/chat_template.jinja" : named;
  if (!named.empty() || Exists(file)) {
    const std::string source = named.empty() ? ReadWholeFile(file, kLargestSettings)
                                             : ReadGivenFile(file, kLargestSettings);
    return ChatTemplate(file, source, config, std::time(nullptr));
  }
  const auto found = config.find("chat_template");
  if (found != config.end() && found->is_string()) {
    return ChatTemplate("chat_template of " + config_path, found->get<std::string>(), config,
                        std::time(nullptr));
  }
  if (found == config.end() || !found->is_array()) {
    throw DataError(folder + " has no chat template",
                    "a base model has none; use the folder of its instruct version, or put a "
                    "chat_template.jinja there");
  }
  ChatTemplate made(config_path, "", config, std::time(nullptr));
  made.templates_.clear();
  for (const nlohmann::json& each : *found) {
    const auto text = [&](const char* key) {
      const bool good = each.is_object() && each.contains(key) && each.at(key).is_string();
      if (!good) throw DataError("a chat_template of " + config_path + " has no " + key);
      return each.at(key).get<std::string>();
    };
    const std::string name = text("name");
    if (name != kDefault && name != kToolUse) continue;
    made.Add(name, "chat_template " + name + " of " + config_path, text("template"));
  }
  if (made.templates_.count(kDefault) == 0) {
    throw DataError("no chat_template of " + config_path + " is named default");
  }
  return made;
}

ChatTemplate::ChatTemplate(const std::string& name, const std::string& source,
                           const nlohmann::json& config, std::time_t now)
    : eos_token_(SpecialToken(config, "eos_token")), now_(now) {
  Add(kDefault, name, source);
  for (const char* token : kSpecialTokens) {
    const std::string text = SpecialToken(config, token);
    if (!text.empty()) special_tokens_[token] = text;
  }
}

void ChatTemplate::Add(const std::string& name, const std::string& file,
                       const std::string& source) {
  templates_.insert_or_assign(name, jinja::Template(file, source));
}

const jinja::Template& ChatTemplate::TemplateFor(const Conversation& conversation) const {
  const auto tool_use = templates_.find(kToolUse);
  return !conversation.tools.is_null() && tool_use != templates_.end() ? tool_use->second
                                                                       : templates_.at(kDefault);
}

jinja::Rendered ChatTemplate::RenderFirst(const Conversation& conversation, size_t messages,
                                          bool add_generation_prompt) const {
  Json variables = special_tokens_;
  variables["messages"] = Json::array();
  for (size_t i = 0; i < messages; ++i) {
    variables["messages"].push_back(conversation.messages[i]);
  }
  // transformers passes none when there are none.
  variables["tools"] = conversation.tools;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = add_generation_prompt;
  variables.update(conversation.variables);
  return TemplateFor(conversation).Render(variables, now_);
}

std::string ChatTemplate::Render(const Conversation& conversation,
                                 bool add_generation_prompt) const {
  CheckMessages(conversation.messages);
  return RenderFirst(conversation, conversation.messages.size(), add_generation_prompt).text;
}

// With generation blocks, what lies in the text of the first messages is not learned.
void ChatTemplate::DropPrompt(const Conversation& conversation, size_t first,
                              MaskedText* masked) const {
  const std::string prompt = RenderFirst(conversation, first, false).text;
  if (!BeginsWith(masked->text, prompt)) {
    throw DataError("the template changes the prompt when a completion follows",
                    "--mask last learns only the last turn");
  }
  auto& learned = masked->learned;
  learned.erase(std::remove_if(learned.begin(), learned.end(),
                               [&](const auto& span) { return span.first < prompt.size(); }),
                learned.end());
}

MaskedText ChatTemplate::RenderMasked(const Conversation& conversation, Turns turns,
                                      size_t first) const {
  CheckMessages(conversation.messages);
  const Json& messages = conversation.messages;
  if (turns == Turns::kLast && (messages.empty() || !IsAssistant(messages.back()))) {
    throw DataError("the last message is not the assistant's");
  }
  jinja::Rendered whole = RenderFirst(conversation, messages.size(), false);
  MaskedText masked;
  masked.text = std::move(whole.text);
  if (!whole.generations.empty()) {
    masked.learned = std::move(whole.generations);
    if (turns == Turns::kLast) {
      masked.learned.erase(masked.learned.begin(), masked.learned.end() - 1);
    } else if (first > 0) {
      DropPrompt(conversation, first, &masked);
      if (masked.learned.empty()) throw DataError("there is no message of the assistant");
    }
    return masked;
  }
  for (size_t i = first; i < messages.size(); ++i) {
    const bool last = i + 1 == messages.size();
    if (!IsAssistant(messages[i]) || (turns == Turns::kLast && !last)) continue;
    masked.learned.push_back(TurnOf(conversation, i, masked.text));
  }
  if (masked.learned.empty()) {
    throw DataError("there is no message of the assistant");
  }
  return masked;
}

std::pair<size_t, size_t> ChatTemplate::TurnOf(const Conversation& conversation, size_t message,
                                               const std::string& text) const {
  const bool last = message + 1 == conversation.messages.size();
  const std::string before = RenderFirst(conversation, message, true).text;
  const std::string with = last ? text : RenderFirst(conversation, message + 1, false).text;
  const std::string where = "message " + std::to_string(message + 1);
  if (!BeginsWith(with, before)) {
    throw DataError(where +
                        ": the template begins an answer in another way than it writes one, so "
                        "that nobody knows what the assistant wrote",
                    "a template with {% generation %} blocks tells it");
  }
  if (!BeginsWith(text, with)) {
    throw DataError(where + ": the template changes this turn when others follow",
                    "--mask last learns only the last turn");
  }
  return {before.size(), EndOfTurn(text, before.size(), with.size())};
}

// A turn ends with its last token. What the template writes behind it, mostly a newline, is not the
// assistant's.
size_t ChatTemplate::EndOfTurn(const std::string& text, size_t begin, size_t end) const {
  if (eos_token_.empty()) return end;
  const size_t found = text.rfind(eos_token_, end - std::min(end, eos_token_.size()));
  if (found == std::string::npos || found < begin) return end;
  const size_t behind = found + eos_token_.size();
  return text.find_first_not_of(" \t\r\n", behind) < end ? end : behind;
}

}  // namespace gpuctl::trainer
