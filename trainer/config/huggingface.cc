// Reads and writes the model in a checkpoint's config.json, which is readable as a Hugging Face
// Llama.

#include "trainer/base/error.h"
#include "trainer/config/config.h"

namespace gpuctl::trainer {

using nlohmann::json;

json ModelToHuggingFace(const ModelConfig& model) {
  return {{"architectures", json::array({"LlamaForCausalLM"})},
          {"model_type", "llama"},
          {"vocab_size", model.vocab_size},
          {"hidden_size", model.d_model},
          {"intermediate_size", model.ffn},
          {"num_hidden_layers", model.layers},
          {"num_attention_heads", model.heads},
          {"num_key_value_heads", model.kv_heads},
          {"max_position_embeddings", model.context},
          {"rope_theta", model.rope_theta},
          {"rms_norm_eps", model.norm_eps},
          {"hidden_act", "silu"},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"tie_word_embeddings", true},
          {"bos_token_id", 256}};
}

ModelConfig ModelFromHuggingFace(const json& parsed, const std::string& path) {
  const auto number = [&](const char* key) -> json {
    if (!parsed.is_object() || !parsed.contains(key) || !parsed[key].is_number()) {
      throw DataError("read model " + path + ": \"" + key + "\" is missing or no number");
    }
    return parsed[key];
  };
  ModelConfig model;
  model.vocab_size = number("vocab_size").get<int64_t>();
  model.d_model = number("hidden_size").get<int64_t>();
  model.ffn = number("intermediate_size").get<int64_t>();
  model.layers = number("num_hidden_layers").get<int64_t>();
  model.heads = number("num_attention_heads").get<int64_t>();
  model.kv_heads = number("num_key_value_heads").get<int64_t>();
  model.context = number("max_position_embeddings").get<int64_t>();
  model.rope_theta = number("rope_theta").get<double>();
  model.norm_eps = number("rms_norm_eps").get<double>();
  if (parsed.value("model_type", "") != "llama" || !parsed.value("tie_word_embeddings", false)) {
    throw DataError("read model " + path + ": only llama with a tied head can be read");
  }
  Config whole;
  whole.model = model;
  try {  // the same ranges and divisibility as for a configuration file
    const json again = ConfigToJson(whole);
    ParseConfig(json{{"model", again["model"]}});
  } catch (const Error& error) {
    throw DataError("read model " + path + ": " + error.what());
  }
  return model;
}

}  // namespace gpuctl::trainer
