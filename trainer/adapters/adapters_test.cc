#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/adapters/adapter.h"
#include "trainer/adapters/low_rank.h"
#include "trainer/base/error.h"
#include "trainer/config/name_pattern.h"

namespace gpuctl::trainer {
namespace {

bool Matches(const std::string& expression, const std::string& name) {
  const std::optional<NamePattern> pattern = NamePattern::Read(expression);
  EXPECT_TRUE(pattern.has_value()) << expression;
  return pattern && pattern->Matches(name);
}

TEST(NamePatternTest, MatchesAsPythonDoes) {
  const std::string name = "model.layers.10.self_attn.q_proj";
  EXPECT_TRUE(Matches("q_proj", name));
  EXPECT_TRUE(Matches("self_attn.q_proj", name));
  EXPECT_TRUE(Matches(R"(model\.layers\.10\..*q_proj)", name));
  EXPECT_TRUE(Matches("^model.layers.10.self_attn.q_proj$", name));
  EXPECT_TRUE(Matches(R"(layers\.\d+\.self_attn\.[qk]_proj)", name));
  EXPECT_TRUE(Matches(R"(layers\.[0-9]+.*)", name));
  EXPECT_TRUE(Matches("x*q_proj", name));
  EXPECT_TRUE(Matches("q_?proj", name));
  EXPECT_FALSE(Matches("_proj", name));
  EXPECT_FALSE(Matches("q_pro", name));
  EXPECT_FALSE(Matches("^q_proj", name));
  EXPECT_FALSE(Matches(R"(layers\.1\..*)", name));
  EXPECT_FALSE(Matches("x+q_proj", name));
  EXPECT_FALSE(Matches(R"(layers\.\d\.self_attn\.q_proj)", name));
  for (const char* other : {"(a|b)", "a{2}", "", "*a", "[^a]", "[a", "\\w", "a\\", "^", "a**"}) {
    EXPECT_FALSE(NamePattern::Read(other).has_value()) << other;
  }
}

TEST(NamePatternTest, HostilePatternsTakeNoTime) {
  std::string expression;
  for (int i = 0; i < 500; ++i) expression += "a*";
  EXPECT_FALSE(Matches(expression + "b", std::string(5000, 'a')));
}

std::string WhyRefused(const nlohmann::json& json) {
  try {
    ParseAdapterConfig(json, "c");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadData);
    return error.what();
  }
  return "";
}

TEST(AdapterTest, ConfigsAreRefusedByName) {
  const nlohmann::json good = {{"peft_type", "LORA"}, {"r", 8},
                               {"lora_alpha", 16},    {"target_modules", {"q_proj"}},
                               {"bias", "none"},      {"layer_replication", nullptr},
                               {"use_qalora", false}};
  EXPECT_EQ(WhyRefused(good), "");
  const auto with = [&](const std::string& key, const nlohmann::json& value) {
    nlohmann::json changed = good;
    changed[key] = value;
    return WhyRefused(changed);
  };
  EXPECT_EQ(with("peft_type", "LOHA"), "read c: peft_type: LOHA: only LORA can be read");
  EXPECT_EQ(with("bias", "all"), "read c: bias: all: only none can be read");
  EXPECT_EQ(with("fan_in_fan_out", true), "read c: fan_in_fan_out: is not computed here");
  EXPECT_EQ(with("use_qalora", true), "read c: \"use_qalora\" is not computed here");
  EXPECT_EQ(with("layer_replication", {{0, 4}}),
            "read c: \"layer_replication\" is not computed here");
  EXPECT_EQ(with("something_new", 1), "read c: \"something_new\" is not computed here");
  EXPECT_NE(with("init_lora_weights", "pissa"), "");
  EXPECT_EQ(with("init_lora_weights", "gaussian"), "");
  EXPECT_EQ(with("r", 0), "read c: r: must be at least 1");
  EXPECT_EQ(with("r", 1e18), "read c: r: must be a whole number from 0 to 65536");
  EXPECT_EQ(with("r", nullptr), "read c: \"r\" is missing");
  EXPECT_EQ(with("lora_alpha", "16"), "read c: lora_alpha: must be a number");
  EXPECT_EQ(with("lora_alpha", 0), "read c: lora_alpha: must be above 0");
  EXPECT_EQ(with("target_modules", nlohmann::json::array()),
            "read c: target_modules: names no module");
  EXPECT_EQ(with("target_modules", "all-linear"), "");
  EXPECT_EQ(with("target_modules", 7), "read c: target_modules: must be a list");
  EXPECT_EQ(with("rank_pattern", {{"(a|b)", 4}}),
            "read c: rank_pattern: \"(a|b)\": choices and groups cannot be read");
  EXPECT_EQ(with("alpha_pattern", {{"q_proj", -4}}),
            "read c: alpha_pattern.q_proj: must be above 0");
}

// A tensor without a file: only names and shapes are looked at.
StoredPlace Place(const std::vector<int64_t>& shape) {
  StoredPlace place;
  place.tensor.dtype = "F32";
  place.tensor.shape = shape;
  return place;
}

AdapterConfig Config(const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json json = {
      {"peft_type", "LORA"}, {"r", 4}, {"lora_alpha", 8}, {"target_modules", {"q", "v"}}};
  json.update(more);
  return ParseAdapterConfig(json, "c");
}

TEST(AdapterTest, PatternsGiveRanksAndScales) {
  const AdapterConfig config = Config(
      {{"rank_pattern", {{"layers.1.q", 2}}}, {"alpha_pattern", {{"v", 3}}}, {"use_rslora", true}});
  const std::string p = "base_model.model.layers.";
  const Adapter adapter = ArrangeAdapter("a", config,
                                         {{p + "0.q.lora_A.weight", Place({4, 5})},
                                          {p + "0.q.lora_B.weight", Place({6, 4})},
                                          {p + "1.q.lora_A.weight", Place({2, 5})},
                                          {p + "1.q.lora_B.weight", Place({6, 2})},
                                          {p + "1.v.lora_A.weight", Place({4, 5})},
                                          {p + "1.v.lora_B.weight", Place({6, 4})}});
  ASSERT_EQ(adapter.modules.size(), 3u);
  EXPECT_DOUBLE_EQ(adapter.modules[0].scale, 8 / std::sqrt(4.0));
  EXPECT_DOUBLE_EQ(adapter.modules[1].scale, 8 / std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(adapter.modules[2].scale, 3 / std::sqrt(4.0));
}

TEST(AdapterTest, TensorsAreRefusedByName) {
  const auto why = [](const std::map<std::string, StoredPlace>& places,
                      const nlohmann::json& more = nlohmann::json::object()) -> std::string {
    try {
      ArrangeAdapter("a", Config(more), places);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kBadData);
      return error.what();
    }
    return "";
  };
  const std::string p = "base_model.model.";
  const StoredPlace a = Place({4, 5}), b = Place({6, 4});
  const std::map<std::string, StoredPlace> good = {{p + "q.lora_A.weight", a},
                                                   {p + "q.lora_B.weight", b}};
  EXPECT_EQ(why(good), "");
  EXPECT_NE(why(good, {{"use_dora", true}}).find("lora_magnitude_vector is missing"),
            std::string::npos);
  EXPECT_NE(why({}).find("no tensors"), std::string::npos);
  EXPECT_NE(why({{"q.lora_A.weight", a}}).find("does not begin with"), std::string::npos);
  EXPECT_NE(why({{p + "q.lora_A.weight", a}}).find("lora_B is missing"), std::string::npos);
  EXPECT_NE(why({{p + "q.lora_B.weight", b}}).find("lora_A is missing"), std::string::npos);
  EXPECT_NE(why({{p + "k.lora_A.weight", a}, {p + "k.lora_B.weight", b}}).find("target_modules"),
            std::string::npos);
  EXPECT_NE(
      why({{p + "q.lora_A.weight", a}, {p + "q.lora_B.weight", Place({6, 5})}}).find("rank 4"),
      std::string::npos);
  EXPECT_NE(why({{p + "q.lora_A.weight", Place({4})}, {p + "q.lora_B.weight", b}}).find("rank 4"),
            std::string::npos);
  EXPECT_NE(why({{p + "e.lora_embedding_A", a}}).find("neither a LoRA"), std::string::npos);
  EXPECT_NE(why({{p + "head.weight", a}}).find("neither a LoRA"), std::string::npos);
  EXPECT_EQ(why({{p + "head.weight", a}}, {{"modules_to_save", {"head"}}}), "");
  EXPECT_EQ(why({{p + "head.weight", a}}, {{"modules_to_save", {"head", "norm"}}}),
            "read adapter a: modules_to_save names norm, and the file has no tensor of it");
  EXPECT_EQ(why({{p + "lm_head.weight", a}}, {{"modules_to_save", {"embed_tokens", "lm_head"}}}),
            "");
  EXPECT_NE(why({{p, a}}).find("neither a LoRA"), std::string::npos);
  EXPECT_NE(why({{p + ".lora_A.weight", a}}).find("neither a LoRA"), std::string::npos);
}

TEST(LowRankTest, AddsTheProduct) {
  const int64_t rows = 3, rank = 2, columns = 1300;
  std::vector<float> a(static_cast<size_t>(rank * columns)), b = {1, 2, 3, 4, 5, 6};
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 17);
  std::vector<float> w(static_cast<size_t>(rows * columns), 1.0f);
  AddLowRank(b.data(), a.data(), rows, rank, columns, 0.5f, w.data());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < columns; ++i) {
      const auto at = static_cast<size_t>(i);
      const float expected =
          1 + 0.5f * (b[static_cast<size_t>(2 * row)] * a[at] +
                      b[static_cast<size_t>(2 * row + 1)] * a[at + static_cast<size_t>(columns)]);
      ASSERT_EQ(w[static_cast<size_t>(row * columns + i)], expected);
    }
  }
}

}  // namespace
}  // namespace gpuctl::trainer
