// Ids that other programs made, of Qwen2's tokenizer. They lie beside the project, in
// $GPUCTL_VECTORS_DIR or ../shared/tokenizer-vectors.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "trainer/base/files.h"
#include "trainer/tests/need_truth.h"
#include "trainer/tokenizer/tokenizer.h"

namespace gpuctl::trainer {
namespace {

std::string VectorsDir() {
  const char* const named = std::getenv("GPUCTL_VECTORS_DIR");
  return named != nullptr ? named : TOKENIZER_ROOT "/../shared/tokenizer-vectors";
}

#define NEED_VECTORS()                                                                    \
  const std::string dir = VectorsDir() + "/qwen2";                                        \
  NEED_TRUTH(Exists(dir + "/tokenizer.json"), "there are no vectors in " + VectorsDir()); \
  const Tokenizer tokenizer = Tokenizer::Load(dir + "/tokenizer.json")

// Returns the texts of llama.cpp's file, which have a line between them.
std::vector<std::string> Texts(const std::string& path) {
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::string all = ReadWholeFile(path);
  std::vector<std::string> texts;
  for (size_t end; (end = all.find(separator)) != std::string::npos;
       all.erase(0, end + separator.size())) {
    texts.push_back(all.substr(0, end));
  }
  return texts;
}

TEST(VectorsTest, IdsOfLlamaCpp) {
  NEED_VECTORS();
  const std::vector<std::string> texts = Texts(dir + "/ggml-vocab-qwen2.gguf.inp");
  std::istringstream lines(ReadWholeFile(dir + "/ggml-vocab-qwen2.gguf.out"));
  ASSERT_EQ(texts.size(), 46u);
  for (const std::string& text : texts) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    std::istringstream numbers(line);
    std::vector<int32_t> want;
    for (int32_t id; numbers >> id;) want.push_back(id);
    EXPECT_EQ(tokenizer.Encode(text, false), want) << text;
  }
}

TEST(VectorsTest, IdsOfTransformersInManyLanguages) {
  NEED_VECTORS();
  const auto read = [&](const char* name) {
    return nlohmann::json::parse(ReadWholeFile(dir + "/" + name));
  };
  std::map<std::string, std::string> texts;
  const nlohmann::json inputs = read("multilingual_inputs.json");
  for (const auto& input : inputs) texts[input.at("id")] = input.at("text");
  const nlohmann::json want = read("multilingual_qwen2_5.json");
  size_t compared = 0;
  for (const auto& entry : want.at("entries")) {
    const std::string& text = texts.at(entry.at("id"));
    EXPECT_EQ(tokenizer.Encode(text, false), entry.at("input_ids").get<std::vector<int32_t>>())
        << text;
    ++compared;
  }
  EXPECT_EQ(compared, 83u);
}

}  // namespace
}  // namespace gpuctl::trainer
