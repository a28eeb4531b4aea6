#include "trainer/data/prompts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/json_object.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::json;

constexpr int64_t kPromptsFormat = 1;
constexpr int64_t kMaxId = int64_t{1} << 31;

// Returns text whose code points are the bytes.
std::string CodePointsOf(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      text += c;
    } else {
      text += static_cast<char>(0xc0 | (byte >> 6));
      text += static_cast<char>(0x80 | (byte & 0x3f));
    }
  }
  return text;
}

// Reads prompts.json of a folder.
class PromptsReader {
 public:
  explicit PromptsReader(const std::string& path)
      : path_(path), json_(ParseJsonObject(ReadWholeFile(path), "read data " + path)) {}

  EncodedPrompts Read() const {
    if (At(json_, "format") != kPromptsFormat) Refuse("has another format");
    EncodedPrompts encoded;
    const json& chat = At(json_, "chat");
    if (!chat.is_boolean()) Refuse("\"chat\" is not true or false");
    encoded.chat = chat.get<bool>();
    encoded.stop_ids = Ids(json_, "stop_ids");
    for (const json& prompt : List(json_, "prompts")) {
      if (!prompt.is_object()) Refuse("\"prompts\" has something that is no object");
      encoded.prompts.push_back({Text(At(prompt, "text")), Ids(prompt, "ids")});
      if (encoded.prompts.back().ids.empty()) Refuse("a prompt has no ids");
    }
    for (const json& piece : List(json_, "pieces")) {
      encoded.pieces.push_back(BytesOf(Text(piece)));
    }
    return encoded;
  }

 private:
  [[noreturn]] void Refuse(const std::string& why) const {
    throw DataError("read data " + path_ + ": " + why, "prepare the data again");
  }
  const json& At(const json& object, const char* key) const {
    if (!object.contains(key)) Refuse(std::string("has no \"") + key + "\"");
    return object[key];
  }
  const json& List(const json& object, const char* key) const {
    const json& list = At(object, key);
    if (!list.is_array()) Refuse(std::string("\"") + key + "\" is no list");
    return list;
  }
  std::string Text(const json& value) const {
    if (!value.is_string()) Refuse("has something else in the place of a text");
    return value.get<std::string>();
  }
  std::vector<int64_t> Ids(const json& object, const char* key) const {
    std::vector<int64_t> ids;
    for (const json& id : List(object, key)) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMaxId) {
        Refuse(std::string("\"") + key + "\" has " + id.dump() + ", which is no id");
      }
      ids.push_back(id.get<int64_t>());
    }
    return ids;
  }
  // The reverse of CodePointsOf.
  std::string BytesOf(const std::string& text) const {
    std::string bytes;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto first = static_cast<unsigned char>(text[i]);
      if (first < 0x80) {
        bytes += text[i];
        continue;
      }
      if ((first != 0xc2 && first != 0xc3) || i + 1 == text.size()) {
        Refuse("a piece has a code point above 255");
      }
      bytes += static_cast<char>((first << 6) | (static_cast<unsigned char>(text[++i]) & 0x3f));
    }
    return bytes;
  }

  const std::string path_;
  const json json_;
};

}  // namespace

std::string EncodedPrompts::TextOf(const std::vector<int64_t>& ids) const {
  std::string text;
  for (const int64_t id : ids) {
    if (id >= 0 && id < static_cast<int64_t>(pieces.size()))
      text += pieces[static_cast<size_t>(id)];
  }
  return text;
}

std::string PromptsToJson(const EncodedPrompts& encoded) {
  nlohmann::ordered_json written = {{"format", kPromptsFormat},
                                    {"chat", encoded.chat},
                                    {"stop_ids", encoded.stop_ids},
                                    {"prompts", json::array()},
                                    {"pieces", json::array()}};
  for (const EncodedPrompt& prompt : encoded.prompts) {
    written["prompts"].push_back({{"text", prompt.text}, {"ids", prompt.ids}});
  }
  for (const std::string& piece : encoded.pieces) written["pieces"].push_back(CodePointsOf(piece));
  return written.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

EncodedPrompts FindPrompts(const SampleConfig& sample, const std::string& folder) {
  const std::string path = folder + "/" + kPromptsFile;
  EncodedPrompts encoded;
  if (Exists(path)) encoded = PromptsReader(path).Read();
  std::vector<EncodedPrompt> named;
  for (const std::string& text : sample.AllPrompts()) {
    const auto found = std::find_if(encoded.prompts.begin(), encoded.prompts.end(),
                                    [&](const EncodedPrompt& one) { return one.text == text; });
    if (found == encoded.prompts.end()) {
      throw ConfigError(
          "find prompts: sample has the prompt \"" + text + "\", which is not in " + folder,
          "prepare the data with --prompt, or set sample.tokens to 0");
    }
    named.push_back(*found);
  }
  encoded.prompts = std::move(named);
  return encoded;
}

}  // namespace gpuctl::trainer
