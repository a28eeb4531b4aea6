// Small documents for tests, to which a test adds what it is about.

#ifndef TRAINER_TOKENIZER_TEST_SMALL_TOKENIZERS_H_
#define TRAINER_TOKENIZER_TEST_SMALL_TOKENIZERS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gpuctl::trainer {

// A tokenizer whose tokens are these texts, with their places as ids; the merges are texts with a
// space between two tokens.
inline nlohmann::json SmallTokenizer(const std::vector<std::string>& tokens,
                                     const std::vector<std::string>& merges) {
  nlohmann::json vocabulary = nlohmann::json::object();
  for (size_t i = 0; i < tokens.size(); ++i) vocabulary[tokens[i]] = i;
  return {{"version", "1.0"},
          {"added_tokens", nlohmann::json::array()},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}};
}

inline nlohmann::json SmallAdded(const std::string& content, int id, bool special = true) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

}  // namespace gpuctl::trainer

#endif  // TRAINER_TOKENIZER_TEST_SMALL_TOKENIZERS_H_
