// A model folder for tests: each byte of a text is a token, with its value as id.

#ifndef TRAINER_PREPARE_TEST_MODEL_H_
#define TRAINER_PREPARE_TEST_MODEL_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/base/files.h"
#include "trainer/data/prepared.h"

namespace gpuctl::trainer {

constexpr uint32_t kTestBos = 256;
constexpr uint32_t kTestEos = 257;

// As ChatML writes it, with a token at each turn's end.
constexpr char kTestTemplate[] =
    "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}<e>\n{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}";

// Bytes that ByteLevel does not show as themselves have the letters from U+0100 on.
inline nlohmann::json TestTokenizer() {
  nlohmann::json vocabulary = nlohmann::json::object();
  int others = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool plain = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    const int point = plain ? byte : 0x100 + others++;
    std::string letter(1, static_cast<char>(point));
    if (point >= 0x80) {
      letter = {static_cast<char>(0xc0 | point >> 6), static_cast<char>(0x80 | (point & 0x3f))};
    }
    vocabulary[letter] = byte;
  }
  const auto added = [](const char* content, uint32_t id) {
    return nlohmann::json{{"id", id},        {"content", content}, {"single_word", false},
                          {"lstrip", false}, {"rstrip", false},    {"normalized", false},
                          {"special", true}};
  };
  return {
      {"version", "1.0"},
      {"added_tokens", {added("<s>", kTestBos), added("<e>", kTestEos)}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
          {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"pair", nlohmann::json::array()},
        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {kTestBos}}, {"tokens", {"<s>"}}}}}}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}};
}

inline void WriteTestModel(const std::string& folder, const std::string& chat_template) {
  MakeDirectory(folder);
  WriteFileDurably(folder + "/tokenizer.json", TestTokenizer().dump());
  nlohmann::json config = {{"eos_token", "<e>"}, {"bos_token", "<s>"}};
  if (!chat_template.empty()) config["chat_template"] = chat_template;
  WriteFileDurably(folder + "/tokenizer_config.json", config.dump());
}

// Returns words as text: <s> and <e> for the tokens that begin and end a text, and what is learned
// between [ and ].
inline std::string ShownWords(const uint32_t* words, size_t size) {
  std::string shown;
  bool learned = false;
  for (size_t i = 0; i <= size; ++i) {
    const bool next = i < size && (words[i] & kLearnedBit) != 0;
    if (next != learned) shown += next ? "[" : "]";
    learned = next;
    if (i == size) return shown;
    const uint32_t id = words[i] & ~kLearnedBit;
    shown += id == kTestBos   ? "<s>"
             : id == kTestEos ? "<e>"
                              : std::string(1, static_cast<char>(id));
  }
  return shown;
}

}  // namespace gpuctl::trainer

#endif  // TRAINER_PREPARE_TEST_MODEL_H_
