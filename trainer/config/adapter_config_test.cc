#include "trainer/config/adapter_config.h"

#include <gtest/gtest.h>

#include "trainer/tests/expect_error.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::json;

json PlainAdapter() {
  return {{"peft_type", "LORA"}, {"r", 8}, {"lora_alpha", 16}, {"target_modules", {"q_proj"}}};
}

LoraConfig ReadAdapter(const json& changes) {
  json config = PlainAdapter();
  config.update(changes);
  return LoraFromPeft(config, "x");
}

TEST(AdapterConfigTest, KeysLeftOutHaveTheLibrarysValues) {
  const LoraConfig lora = ReadAdapter(json::object());
  EXPECT_EQ(lora.rank, 8);
  EXPECT_EQ(lora.alpha, 16);
  EXPECT_EQ(lora.dropout, 0);
  EXPECT_FALSE(lora.rank_scaled || lora.dora);
  EXPECT_TRUE(lora.targets.empty());
}

TEST(AdapterConfigTest, WrittenOnesAreReadAgain) {
  LoraConfig lora;
  lora.rank = 4;
  lora.alpha = 2.5;
  lora.dropout = 0.1;
  lora.dora = lora.rank_scaled = true;
  lora.targets = {"q_proj", "model.layers.1.mlp.up_proj"};
  lora.modules_to_save = {"embed_tokens"};
  const json written = LoraToPeft(lora, "some/model");
  EXPECT_EQ(written["target_modules"], json(lora.targets));
  EXPECT_EQ(written["modules_to_save"], json(lora.modules_to_save));
  EXPECT_EQ(written["base_model_name_or_path"], "some/model");
  const LoraConfig back = LoraFromPeft(written, "x");
  EXPECT_EQ(back.rank, 4);
  EXPECT_EQ(back.alpha, 2.5);
  EXPECT_EQ(back.dropout, 0.1);
  EXPECT_TRUE(back.dora && back.rank_scaled);
  lora.alpha = 32;
  EXPECT_TRUE(LoraToPeft(lora, "m")["lora_alpha"].is_number_integer());
}

// Merging and exporting take more than training does, and nothing that training takes is refused
// there.
TEST(AdapterConfigTest, WhatOnlyMergingCanIsReadAll) {
  const json changes = {{"r", 5000},
                        {"lora_dropout", 0.99},
                        {"task_type", "SEQ_CLS"},
                        {"rank_pattern", {{"q_proj", 4}}},
                        {"alpha_pattern", {{"q_proj", 2.5}}}};
  json config = PlainAdapter();
  config.update(changes);
  const AdapterConfig adapter = ParseAdapterConfig(config, "x");
  EXPECT_EQ(adapter.rank, 5000);
  EXPECT_EQ(adapter.ranks.at(0).second, 4);
  EXPECT_EQ(adapter.alphas.at(0).second, 2.5);
  for (const auto& [key, value] : changes.items()) {
    EXPECT_ERROR(ReadAdapter({{key, value}}), ExitCode::kBadData, "read adapter x: " + key);
  }
  for (const char* key : {"loftq_config", "corda_config", "parent_library", "base_model_class"}) {
    EXPECT_NO_THROW(ReadAdapter({{key, {{"a", 1}}}})) << key;
  }
}

TEST(AdapterConfigTest, WhatIsNotComputedIsRefusedByName) {
  const auto refused = [](const json& changes, const std::string& part) {
    EXPECT_ERROR(ReadAdapter(changes), ExitCode::kBadData, part);
  };
  refused({{"peft_type", "IA3"}}, "peft_type: IA3");
  refused({{"peft_type", nullptr}}, "\"peft_type\" is missing");
  refused({{"task_type", "SEQ_CLS"}}, "task_type: SEQ_CLS: only CAUSAL_LM can be trained");
  refused({{"r", 0}}, "r: must be at least 1");
  refused({{"r", 1.5}}, "r: must be a whole number");
  refused({{"r", 1e300}}, "r: must be a whole number");
  refused({{"r", "8"}}, "r: must be a whole number");
  refused({{"r", 5000}}, "r: must be at most 4096 here");
  refused({{"lora_alpha", 0}}, "lora_alpha: must be above 0");
  refused({{"lora_dropout", 1}}, "lora_dropout: must be from 0 to below 1");
  refused({{"lora_dropout", 0.99}}, "lora_dropout: must be at most 0.95 here");
  refused({{"use_dora", 1}}, "use_dora: must be true or false");
  refused({{"bias", "all"}}, "bias: all");
  refused({{"fan_in_fan_out", true}}, "fan_in_fan_out: is not computed here");
  refused({{"rank_pattern", {{"q_proj", 4}}}}, "rank_pattern: modules differ");
  refused({{"alpha_pattern", {{"q_proj", 4}}}}, "alpha_pattern: modules differ");
  refused({{"init_lora_weights", "pissa"}}, "init_lora_weights: pissa");
  refused({{"init_lora_weights", {1}}}, "init_lora_weights: must be a text");
  refused({{"trainable_token_indices", {1, 2}}}, "\"trainable_token_indices\"");
  refused({{"layer_replication", {{0, 2}}}}, "\"layer_replication\"");
  refused({{"lora_bias", true}}, "\"lora_bias\"");
  refused({{"something_new", 3}}, "\"something_new\" is not computed here");
  EXPECT_ERROR(LoraFromPeft(json::array(), "x"), ExitCode::kBadData, "must be an object");
  EXPECT_NO_THROW(ReadAdapter({{"something_new", nullptr}, {"init_lora_weights", "gaussian"}}));
}

}  // namespace
}  // namespace gpuctl::trainer
