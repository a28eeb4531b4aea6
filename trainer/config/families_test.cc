#include "trainer/config/families.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trainer/tests/expect_error.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::json;

json Sizes(const std::string& model_type) {
  return {{"model_type", model_type}, {"vocab_size", 300},
          {"hidden_size", 64},        {"intermediate_size", 96},
          {"num_hidden_layers", 4},   {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"max_position_embeddings", 128},
          {"rms_norm_eps", 1e-6}};
}

ModelConfig Read(json config, const json& changes = json::object()) {
  config.update(changes);
  return ModelFromHuggingFace(config, "x");
}

void ExpectNotRead(const std::string& model_type, const json& changes, const std::string& part) {
  EXPECT_ERROR(Read(Sizes(model_type), changes), ExitCode::kBadData, part);
}

TEST(FamiliesTest, OwnModelsSurviveTheirForm) {
  ModelConfig model;
  model.layers = 3;
  model.rope_theta = 5000;
  const ModelConfig back = ModelFromHuggingFace(ModelToHuggingFace(model), "x");
  EXPECT_EQ(back.layers, 3);
  EXPECT_EQ(back.rope_theta, 5000);
  EXPECT_EQ(back.norm_eps, model.norm_eps);
  EXPECT_EQ(back.head_size, 0);
  EXPECT_TRUE(back.tied_head);
  EXPECT_TRUE(back.windowed.empty());
}

TEST(FamiliesTest, KeysLeftOutHaveTheFamilysValues) {
  const ModelConfig llama = Read(Sizes("llama"));
  EXPECT_FALSE(llama.tied_head || llama.qkv_bias || llama.qk_norm || llama.gelu);
  EXPECT_EQ(llama.head_dim(), 16);
  EXPECT_EQ(llama.rope_theta, 10000);
  EXPECT_EQ(llama.context, 128);
  const ModelConfig mistral = Read(Sizes("mistral"));
  EXPECT_EQ(mistral.window, 4096);
  EXPECT_EQ(mistral.windowed, std::vector<bool>(4, true));
  const ModelConfig qwen2 = Read(Sizes("qwen2"));
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.out_bias && !qwen2.tied_head && qwen2.windowed.empty());
  const ModelConfig qwen3 = Read(Sizes("qwen3"));
  EXPECT_TRUE(qwen3.qk_norm && !qwen3.qkv_bias);
  EXPECT_EQ(qwen3.head_dim(), 128);
  const ModelConfig gemma = Read(Sizes("gemma3_text"));
  EXPECT_TRUE(gemma.tied_head && gemma.gelu && gemma.norm_offset && gemma.sandwich_norms &&
              gemma.scaled_embedding && gemma.qk_norm);
  EXPECT_EQ(gemma.head_dim(), 256);
  EXPECT_EQ(gemma.query_scale, 1.0 / 16);
  EXPECT_EQ(gemma.rope_theta, 1e6);
  EXPECT_EQ(gemma.local_rope_theta, 1e4);
}

TEST(FamiliesTest, WindowsAreThoseOfTheFamily) {
  const auto windows = [](const std::string& type, const json& changes) {
    return Read(Sizes(type), changes).windowed;
  };
  EXPECT_TRUE(windows("mistral", {{"sliding_window", nullptr}}).empty());
  EXPECT_EQ(windows("qwen2", {{"use_sliding_window", true}, {"max_window_layers", 3}}),
            (std::vector<bool>{false, false, false, true}));
  EXPECT_TRUE(windows("qwen2", {{"max_window_layers", 0}, {"sliding_window", 8}}).empty());
  EXPECT_EQ(windows("gemma3_text", {{"sliding_window_pattern", 2}}),
            (std::vector<bool>{true, false, true, false}));
  const json types = {"full_attention", "sliding_attention", "full_attention", "full_attention"};
  EXPECT_EQ(windows("gemma3_text", {{"layer_types", types}, {"sliding_window_pattern", 2}}),
            (std::vector<bool>{false, true, false, false}));
  ExpectNotRead("llama", {{"layer_types", types}}, "has no windows");
  ExpectNotRead("qwen3", {{"layer_types", types}}, "\"use_sliding_window\" is false");
  ExpectNotRead("mistral", {{"layer_types", types}, {"sliding_window", nullptr}}, "is null");
  ExpectNotRead("qwen3", {{"layer_types", {"full_attention"}}}, "one type for each layer");
  json other = types;
  other[0] = "linear_attention";
  ExpectNotRead("qwen3", {{"layer_types", other}}, "linear_attention");
  ExpectNotRead("mistral", {{"sliding_window", 0}}, "sliding_window");
}

TEST(FamiliesTest, BothVersionsNameThePositions) {
  const json scaling = {{"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 32}};
  json old = scaling, type = scaling, now = scaling;
  old["rope_type"] = type["type"] = now["rope_type"] = "llama3";
  now["rope_theta"] = 777.0;
  for (const ModelConfig& model :
       {Read(Sizes("llama"), {{"rope_theta", 777.0}, {"rope_scaling", old}}),
        Read(Sizes("llama"), {{"rope_theta", 777.0}, {"rope_scaling", type}}),
        Read(Sizes("llama"), {{"rope_parameters", now}})}) {
    EXPECT_EQ(model.rope_theta, 777);
    EXPECT_EQ(model.rope_scaling.kind, "llama3");
    EXPECT_EQ(model.rope_scaling.factor, 8);
    EXPECT_EQ(model.rope_scaling.original_context, 32);
  }
  const ModelConfig gemma =
      Read(Sizes("gemma3_text"),
           {{"rope_parameters",
             {{"full_attention", {{"rope_type", "linear"}, {"factor", 8}, {"rope_theta", 2e6}}},
              {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 5e3}}}}}});
  EXPECT_EQ(gemma.rope_theta, 2e6);
  EXPECT_EQ(gemma.rope_scaling.kind, "linear");
  EXPECT_EQ(gemma.local_rope_theta, 5e3);
}

TEST(FamiliesTest, KeyAndValueHeadsMayBeNull) {
  EXPECT_EQ(Read(Sizes("qwen2"), {{"num_key_value_heads", nullptr}}).kv_heads, 4);
  json missing = Sizes("llama");
  missing.erase("num_key_value_heads");
  EXPECT_EQ(Read(missing).kv_heads, 4);
  missing["model_type"] = "mistral";
  EXPECT_ERROR(Read(missing), ExitCode::kBadData, "num_key_value_heads");
}

TEST(FamiliesTest, OtherModelsAreRefusedByName) {
  ExpectNotRead("phi3", json::object(),
                "model_type \"phi3\" is not known here; known are llama, mistral");
  ExpectNotRead("gemma3", {{"text_config", json::object()}}, "\"gemma3\" is of images and text");
  ExpectNotRead("llama", {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}}}}, "yarn");
  ExpectNotRead("llama", {{"rope_scaling", {{"rope_type", "linear"}}}}, "factor");
  ExpectNotRead("llama", {{"partial_rotary_factor", 0.5}}, "partial_rotary_factor");
  ExpectNotRead("llama", {{"hidden_act", "gelu"}}, "hidden_act");
  ExpectNotRead("llama", {{"quantization_config", {{"bits", 4}}}}, "quantization_config");
  ExpectNotRead("llama", {{"architectures", {"LlamaForSequenceClassification"}}},
                "only LlamaForCausalLM");
  ExpectNotRead("mistral", {{"attention_bias", true}}, "attention_bias");
  ExpectNotRead("qwen3", {{"mlp_bias", true}}, "mlp_bias");
  ExpectNotRead("gemma3_text", {{"final_logit_softcapping", 30.0}}, "final_logit_softcapping");
  ExpectNotRead("qwen3", {{"rope_parameters", {{"full_attention", json::object()}}}},
                "one kind of positions");
  EXPECT_ERROR(ModelFromHuggingFace(json::array(), "x"), ExitCode::kBadData, "no JSON object");
}

TEST(FamiliesTest, ImpossibleSizesAreRefused) {
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "max_position_embeddings"}) {
    for (const json& value :
         {json(0), json(-1), json(1e300), json(2.5), json("4"), json(nullptr)}) {
      ExpectNotRead("llama", {{key, value}}, key);
    }
  }
  ExpectNotRead("llama", {{"num_attention_heads", 3}}, "heads must divide");
  ExpectNotRead("llama", {{"num_key_value_heads", 3}}, "kv_heads must divide");
  ExpectNotRead("llama", {{"head_dim", 7}}, "even");
  EXPECT_EQ(Read(Sizes("llama"), {{"num_attention_heads", 6}, {"head_dim", 8}}).head_dim(), 8);
}

TEST(FamiliesTest, StopTokensAreANumberOrAList) {
  const auto stops = [](const json& config, const json& generation) {
    return StopTokens(config, generation, "x");
  };
  EXPECT_EQ(stops({{"eos_token_id", 2}}, nullptr), std::vector<int64_t>{2});
  EXPECT_EQ(stops({{"eos_token_id", 2}}, {{"eos_token_id", {3, 4}}}), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(stops({{"eos_token_id", {5, 6}}}, {{"eos_token_id", nullptr}}),
            (std::vector<int64_t>{5, 6}));
  EXPECT_TRUE(stops({{"eos_token_id", nullptr}}, nullptr).empty());
  EXPECT_ERROR(stops({{"eos_token_id", "x"}}, nullptr), ExitCode::kBadData, "eos_token_id");
  EXPECT_ERROR(stops({{"eos_token_id", {-1}}}, nullptr), ExitCode::kBadData, "eos_token_id");
}

TEST(FamiliesTest, TheDtypeKeepsItsKey) {
  json both = {{"dtype", "float16"}, {"torch_dtype", "float16"}}, now = {{"dtype", "float16"}},
       none = json::object();
  for (json* config : {&both, &now, &none}) SetHuggingFaceDtype("bfloat16", config);
  EXPECT_EQ(both, (json{{"dtype", "bfloat16"}, {"torch_dtype", "bfloat16"}}));
  EXPECT_EQ(now, (json{{"dtype", "bfloat16"}}));
  EXPECT_EQ(none, (json{{"torch_dtype", "bfloat16"}}));
}

}  // namespace
}  // namespace gpuctl::trainer
