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

TEST(AdapterConfigTest, WhatIsNotComputedIsRefusedByName) {
  const auto refused = [](const json& changes, const std::string& part) {
    EXPECT_ERROR(ReadAdapter(changes), ExitCode::kBadData, part);
  };
  refused({{"peft_type", "IA3"}}, "\"peft_type\" \"IA3\"");
  refused({{"peft_type", nullptr}}, "\"peft_type\" null");
  refused({{"task_type", "SEQ_CLS"}}, "\"task_type\"");
  refused({{"r", 0}}, "\"r\" 0 is outside");
  refused({{"r", 1.5}}, "\"r\" is no whole number");
  refused({{"r", 1e300}}, "\"r\"");
  refused({{"r", "8"}}, "\"r\" is missing or no number");
  refused({{"lora_alpha", 0}}, "\"lora_alpha\"");
  refused({{"lora_dropout", 1}}, "\"lora_dropout\"");
  refused({{"use_dora", 1}}, "\"use_dora\" is not true or false");
  refused({{"bias", "all"}}, "\"bias\" \"all\"");
  refused({{"fan_in_fan_out", true}}, "\"fan_in_fan_out\" true");
  refused({{"rank_pattern", {{"q_proj", 4}}}}, "\"rank_pattern\"");
  refused({{"alpha_pattern", {{"q_proj", 4}}}}, "\"alpha_pattern\"");
  refused({{"init_lora_weights", "pissa"}}, "\"init_lora_weights\" \"pissa\"");
  refused({{"init_lora_weights", {1}}}, "\"init_lora_weights\"");
  refused({{"trainable_token_indices", {1, 2}}}, "\"trainable_token_indices\"");
  refused({{"layer_replication", {{0, 2}}}}, "\"layer_replication\"");
  refused({{"lora_bias", true}}, "\"lora_bias\"");
  refused({{"something_new", 3}}, "\"something_new\" 3");
  EXPECT_ERROR(LoraFromPeft(json::array(), "x"), ExitCode::kBadData, "no JSON object");
  EXPECT_NO_THROW(ReadAdapter({{"something_new", nullptr}, {"init_lora_weights", "gaussian"}}));
}

}  // namespace
}  // namespace gpuctl::trainer
