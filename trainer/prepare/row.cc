#include "trainer/prepare/row.h"

#include <algorithm>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/unicode/utf8.h"

namespace gpuctl::trainer {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxRowDepth = 200;
constexpr size_t kMaxKeys = 2000;
// The template is rendered for each turn, so time grows with the square of their number.
constexpr size_t kMaxMessages = 2000;
constexpr char kKindsHint[] =
    R"(rows have "messages", "prompt" and "completion", "conversations", "text", or "chosen" )"
    R"(and "rejected")";

const char* const kRoles[] = {"system", "developer", "user", "assistant", "tool"};

struct Speaker {
  const char* from;
  const char* role;
};
constexpr Speaker kSpeakers[] = {
    {"human", "user"},        {"user", "user"},           {"gpt", "assistant"},
    {"chatgpt", "assistant"}, {"assistant", "assistant"}, {"model", "assistant"},
    {"system", "system"},     {"tool", "tool"},           {"observation", "tool"},
};

void CheckUtf8(std::string_view text) {
  const size_t valid = ValidUtf8Prefix(text);
  if (valid == text.size()) return;
  throw DataError(Format("byte %zu is no valid UTF-8", valid + 1),
                  "write the file as UTF-8, for example with iconv");
}

Json ParseLine(std::string_view line) {
  CheckUtf8(line);
  const JsonExtent extent = MeasureJson(line);
  if (extent.depth > kMaxRowDepth) {
    throw DataError(Format("is nested more than %d deep", kMaxRowDepth));
  }
  if (extent.keys > kMaxKeys) {
    throw DataError(Format("an object has more than %zu keys", kMaxKeys));
  }
  try {
    return Json::parse(line.begin(), line.end());
  } catch (const Json::parse_error& error) {
    throw DataError(Format("is no JSON: see byte %zu", error.byte));
  } catch (const Json::exception&) {
    throw DataError("is no JSON: a number is out of range");
  }
}

// The keys of data sets that were written as tables have null where a row has nothing.
const Json* FindKey(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string TextOfKey(const Json& object, const char* key) {
  const Json* value = FindKey(object, key);
  if (value == nullptr || !value->is_string()) {
    throw DataError("\"" + std::string(key) + "\" is no text");
  }
  return value->get<std::string>();
}

void CheckContent(const Json& message, const std::string& where) {
  const Json* content = FindKey(message, "content");
  if (content == nullptr) {
    if (FindKey(message, "tool_calls") == nullptr) throw DataError(where + " has no content");
    return;
  }
  if (content->is_string()) return;
  if (!content->is_array()) throw DataError(where + ": its content is no text");
  for (const Json& part : *content) {
    const Json* type = part.is_object() ? FindKey(part, "type") : nullptr;
    if (type == nullptr || !type->is_string()) {
      throw DataError(where + ": a part of its content has no type");
    }
    if (*type != "text") {
      throw DataError(where + ": a part of its content is of type \"" + type->get<std::string>() +
                      "\", and only text can be learned");
    }
    TextOfKey(part, "text");
  }
}

void CheckMessage(const Json& message, size_t number) {
  const std::string where = "message " + std::to_string(number);
  if (!message.is_object()) throw DataError(where + " is no object");
  const Json* role = FindKey(message, "role");
  if (role == nullptr || !role->is_string()) throw DataError(where + " has no role");
  const std::string name = role->get<std::string>();
  if (std::find(std::begin(kRoles), std::end(kRoles), name) == std::end(kRoles)) {
    throw DataError(
        where + " has the role \"" + name + "\"" +
            DidYouMean(name, std::vector<std::string>(std::begin(kRoles), std::end(kRoles))),
        "roles are system, developer, user, assistant and tool");
  }
  CheckContent(message, where);
}

// Appends a list of messages to the conversation's.
void AddMessages(const Json& row, const char* key, Conversation* conversation) {
  const Json& list = row.at(key);
  if (!list.is_array()) throw DataError("\"" + std::string(key) + "\" is no list of messages");
  if (list.empty()) throw DataError("\"" + std::string(key) + "\" is empty");
  Json& all = conversation->messages;
  if (all.size() + list.size() > kMaxMessages) {
    throw DataError(Format("has more than %zu messages", kMaxMessages));
  }
  for (const Json& message : list) {
    CheckMessage(message, all.size() + 1);
    all.push_back(message);
  }
}

std::string RoleOfSpeaker(const std::string& from, size_t number) {
  for (const Speaker& speaker : kSpeakers) {
    if (from == speaker.from) return speaker.role;
  }
  throw DataError("message " + std::to_string(number) + " is from \"" + from + "\"",
                  "speakers are human, gpt, system and tool");
}

// ShareGPT's form, in which some data sets write messages in the usual form, too.
void AddConversations(const Json& row, Conversation* conversation) {
  const Json& list = row.at("conversations");
  const bool usual = list.is_array() && !list.empty() && list[0].is_object() &&
                     FindKey(list[0], "role") != nullptr;
  if (FindKey(row, "system") != nullptr) {
    const std::string system = TextOfKey(row, "system");
    if (!system.empty()) {
      conversation->messages.push_back({{"role", "system"}, {"content", system}});
    }
  }
  if (usual || !list.is_array() || list.empty() || list.size() > kMaxMessages) {
    AddMessages(row, "conversations", conversation);
    return;
  }
  for (const Json& each : list) {
    const size_t number = conversation->messages.size() + 1;
    if (!each.is_object()) throw DataError(Format("message %zu is no object", number));
    conversation->messages.push_back({{"role", RoleOfSpeaker(TextOfKey(each, "from"), number)},
                                      {"content", TextOfKey(each, "value")}});
  }
}

Json ToolsOfText(const std::string& text) {
  if (text.empty()) return nullptr;
  try {
    return ParseLine(text);
  } catch (const Error& error) {
    throw DataError(std::string("\"tools\" is a text that ") + error.what());
  }
}

// Tools are a list, or that list as a text; variables are what the template gets besides.
void AddTools(const Json& row, Conversation* conversation) {
  if (const Json* tools = FindKey(row, "tools")) {
    Json list = *tools;
    if (tools->is_string()) list = ToolsOfText(tools->get_ref<const std::string&>());
    if (!list.is_null() && !list.is_array()) throw DataError("\"tools\" is no list");
    if (!list.empty()) conversation->tools = std::move(list);
  }
  if (const Json* variables = FindKey(row, "chat_template_kwargs")) {
    if (!variables->is_object()) throw DataError("\"chat_template_kwargs\" is no object");
    for (const char* key : {"messages", "tools", "documents", "add_generation_prompt"}) {
      if (variables->contains(key)) {
        throw DataError("\"chat_template_kwargs\" must not have \"" + std::string(key) + "\"");
      }
    }
    conversation->variables = *variables;
  }
}

void ReadPromptAndCompletion(const Json& row, Row* made) {
  if (FindKey(row, "completion") == nullptr) {
    throw DataError(R"(has a "prompt" and no "completion")", kKindsHint);
  }
  const bool texts = row.at("prompt").is_string() && row.at("completion").is_string();
  if (texts) {
    made->prompt = TextOfKey(row, "prompt");
    made->text = TextOfKey(row, "completion");
    if (made->text.empty()) throw DataError("\"completion\" is empty");
    return;
  }
  if (!row.at("prompt").is_array() || !row.at("completion").is_array()) {
    throw DataError(R"("prompt" and "completion" are neither two texts nor two lists of messages)");
  }
  made->is_chat = true;
  AddMessages(row, "prompt", &made->conversation);
  made->first_learned = made->conversation.messages.size();
  AddMessages(row, "completion", &made->conversation);
}

// Reads the answer that `key` names, to what `made` has as its prompt.
void ReadAnswer(const Json& row, const char* key, Row* made) {
  if (!made->is_chat) {
    made->text = TextOfKey(row, key);
    if (made->text.empty()) throw DataError("\"" + std::string(key) + "\" is empty");
    return;
  }
  AddMessages(row, key, &made->conversation);
  AddTools(row, &made->conversation);
}

// Both are whole conversations; what they begin with alike is the prompt.
void FindCommonPrompt(Row* chosen, Row* rejected) {
  const Json &a = chosen->conversation.messages, &b = rejected->conversation.messages;
  size_t common = 0;
  while (common < std::min(a.size(), b.size()) && a[common] == b[common]) ++common;
  if (common == 0) throw DataError(R"("chosen" and "rejected" begin with different messages)");
  if (common == a.size() || common == b.size()) {
    throw DataError(a == b ? R"("chosen" and "rejected" are the same)"
                           : R"(one of "chosen" and "rejected" is the beginning of the other)");
  }
  chosen->first_learned = rejected->first_learned = common;
}

void CheckAnswers(const Row& chosen, const Row& rejected) {
  const bool same = chosen.is_chat ? chosen.conversation.messages == rejected.conversation.messages
                                   : chosen.text == rejected.text;
  if (same) throw DataError(R"("chosen" and "rejected" are the same)");
  if (!chosen.is_chat) return;
  for (const Row* row : {&chosen, &rejected}) {
    const Json& first = row->conversation.messages[row->first_learned];
    if (first["role"] == "assistant") continue;
    throw DataError(std::string(row == &chosen ? "\"chosen\"" : "\"rejected\"") +
                        " answers with a message of the role " + first["role"].dump(),
                    "an answer begins with a message of the assistant");
  }
}

Row ReadPair(const Json& row) {
  for (const char* key : {"chosen", "rejected"}) {
    if (FindKey(row, key) != nullptr) continue;
    throw DataError(std::string(R"(has one of "chosen" and "rejected", and no ")") + key + "\"",
                    kKindsHint);
  }
  const Json* prompt = FindKey(row, "prompt");
  const Json &chosen = row.at("chosen"), &rejected = row.at("rejected");
  const bool texts = chosen.is_string() && rejected.is_string();
  const bool lists = chosen.is_array() && rejected.is_array();
  if (prompt == nullptr && texts) {
    throw DataError(R"("chosen" and "rejected" are texts without a "prompt")");
  }
  if (!(texts && prompt->is_string()) && !(lists && (prompt == nullptr || prompt->is_array()))) {
    throw DataError(
        R"("prompt", "chosen" and "rejected" are neither three texts nor three lists of messages)",
        lists ? R"(where "chosen" and "rejected" are whole conversations, leave "prompt" out)"
              : "");
  }
  Row made;
  made.kind = RowKind::kPair;
  made.is_chat = lists;
  if (texts) made.prompt = TextOfKey(row, "prompt");
  if (lists && prompt != nullptr) AddMessages(row, "prompt", &made.conversation);
  made.first_learned = made.conversation.messages.size();
  Row other = made;
  ReadAnswer(row, "chosen", &made);
  ReadAnswer(row, "rejected", &other);
  if (lists && prompt == nullptr) FindCommonPrompt(&made, &other);
  CheckAnswers(made, other);
  made.rejected = std::make_shared<const Row>(std::move(other));
  return made;
}

std::string KeysOf(const Json& object) {
  std::string keys;
  for (const auto& item : object.items()) {
    if (keys.size() > 60) return keys + ", …";
    keys += (keys.empty() ? "" : ", ") + item.key().substr(0, 40);
  }
  return keys;
}

}  // namespace

const char* NameOf(RowKind kind) {
  switch (kind) {
    case RowKind::kMessages:
      return "messages";
    case RowKind::kPromptCompletion:
      return "prompt";
    case RowKind::kConversations:
      return "conversations";
    case RowKind::kPair:
      return "chosen";
    case RowKind::kText:
      break;
  }
  return "text";
}

void CheckDocument(std::string_view text) {
  CheckUtf8(text);
  if (text.find('\0') != std::string_view::npos) {
    throw DataError("has a NUL byte, so it is no text");
  }
}

Row ParseRow(std::string_view line) {
  const Json row = ParseLine(line);
  if (!row.is_object()) {
    throw DataError("is no JSON object", row.is_array()
                                             ? "one object a line: jq -c '.[]' makes that of a list"
                                             : "one JSON object a line");
  }
  if (FindKey(row, "chosen") != nullptr || FindKey(row, "rejected") != nullptr) {
    return ReadPair(row);
  }
  Row made;
  if (FindKey(row, "messages") != nullptr) {
    made.kind = RowKind::kMessages;
    made.is_chat = true;
    AddMessages(row, "messages", &made.conversation);
  } else if (FindKey(row, "prompt") != nullptr) {
    made.kind = RowKind::kPromptCompletion;
    ReadPromptAndCompletion(row, &made);
  } else if (FindKey(row, "conversations") != nullptr) {
    made.kind = RowKind::kConversations;
    made.is_chat = true;
    AddConversations(row, &made.conversation);
  } else if (FindKey(row, "text") != nullptr) {
    made.text = TextOfKey(row, "text");
    if (made.text.empty()) throw DataError("\"text\" is empty");
  } else {
    throw DataError(row.empty() ? "has no keys" : "has none of the known keys, but " + KeysOf(row),
                    kKindsHint);
  }
  if (made.is_chat) AddTools(row, &made.conversation);
  return made;
}

}  // namespace gpuctl::trainer
