#include "trainer/config/families.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::json;

// Which layers have a window.
enum class Windows {
  kNever,
  kAll,    // all layers, if sliding_window is not null
  kAfter,  // those from max_window_layers on, if use_sliding_window
  kMany,   // as layer_types says; without it, all but each sliding_window_pattern-th
};

// One row of the table. Values after a key's name count when config.json does not have the key.
struct Family {
  const char* model_type;
  const char* architecture;
  bool qkv_bias;        // always there
  bool attention_bias;  // there is a key for biases of q, k, v and o
  bool mlp_bias;        // there is a key
  bool qk_norm;
  bool gemma;            // 1 + weight, norms behind, scaled embedding, query_pre_attn_scalar, GELU
  bool tied_head;        // tie_word_embeddings
  bool kv_heads_needed;  // num_key_value_heads may not be left out, only be null
  int64_t head_dim;      // head_dim; 0: hidden_size / num_attention_heads
  double rope_theta;     // rope_theta
  Windows windows;
  int64_t window;  // sliding_window
};

// clang-format off
constexpr Family kFamilies[] = {
    // model_type    architecture          qkv    bias   mlp    qknorm gemma  tied   kv     head theta windows         window
    {"llama",       "LlamaForCausalLM",    false, true,  true,  false, false, false, false, 0,   1e4, Windows::kNever, 0},
    {"mistral",     "MistralForCausalLM",  false, false, false, false, false, false, true,  0,   1e4, Windows::kAll,   4096},
    {"qwen2",       "Qwen2ForCausalLM",    true,  false, false, false, false, false, true,  0,   1e4, Windows::kAfter, 4096},
    {"qwen3",       "Qwen3ForCausalLM",    false, true,  false, true,  false, false, true,  128, 1e4, Windows::kAfter, 4096},
    {"gemma3_text", "Gemma3ForCausalLM",   false, true,  false, true,  true,  true,  true,  256, 1e6, Windows::kMany,  4096},
};
// clang-format on

constexpr double kLargestCount = 9007199254740992.0;  // 2^53

// Reads keys of one JSON object. A key that is null counts as left out.
class Reader {
 public:
  Reader(const json& object, std::string path) : object_(object), path_(std::move(path)) {
    if (!object_.is_object()) Refuse("it is no JSON object");
  }

  [[noreturn]] void Refuse(const std::string& why) const {
    throw DataError("read model " + path_ + ": " + why);
  }
  bool Has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }
  bool Names(const char* key) const { return object_.contains(key); }
  const json& At(const char* key) const { return object_[key]; }

  double Real(const char* key, double low, double high) const {
    if (!Has(key) || !object_[key].is_number()) {
      Refuse(std::string("\"") + key + "\" is missing or no number");
    }
    const double value = object_[key].get<double>();
    if (!(value >= low && value <= high)) {
      Refuse(Format("\"%s\" %g is outside %g .. %g", key, value, low, high));
    }
    return value;
  }
  double Real(const char* key, double low, double high, double otherwise) const {
    return Has(key) ? Real(key, low, high) : otherwise;
  }
  int64_t Count(const char* key, double low, double high) const {
    const double value = Real(key, low, high);
    if (value != std::floor(value)) Refuse(std::string("\"") + key + "\" is no whole number");
    return static_cast<int64_t>(value);
  }
  int64_t Count(const char* key, double low, double high, int64_t otherwise) const {
    return Has(key) ? Count(key, low, high) : otherwise;
  }
  bool Flag(const char* key, bool otherwise) const {
    if (!Has(key)) return otherwise;
    if (!object_[key].is_boolean())
      Refuse(std::string("\"") + key + "\" is neither true nor false");
    return object_[key].get<bool>();
  }
  std::string Text(const char* key, const std::string& otherwise) const {
    if (!Has(key)) return otherwise;
    if (!object_[key].is_string()) Refuse(std::string("\"") + key + "\" is no text");
    return object_[key].get<std::string>();
  }
  // Returns the object below `key`.
  Reader Inside(const char* key) const { return Reader(object_[key], path_ + ": " + key); }

 private:
  const json& object_;
  const std::string path_;
};

const Family& FamilyOf(const Reader& reader) {
  const std::string type = reader.Text("model_type", "");
  if (reader.Has("text_config") || reader.Has("vision_config")) {
    reader.Refuse("model_type \"" + type +
                  "\" is of images and text; only text models can be read");
  }
  std::string known;
  for (const Family& family : kFamilies) {
    if (type == family.model_type) return family;
    known += (known.empty() ? "" : ", ") + std::string(family.model_type);
  }
  reader.Refuse("model_type \"" + type + "\" is not known here; known are " + known);
}

// Refuses what would change the result and is not computed here.
void RefuseOtherParts(const Reader& reader, const Family& family) {
  if (reader.Has("quantization_config")) {
    reader.Refuse("\"quantization_config\": quantized weights cannot be read");
  }
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (reader.Has(key)) reader.Refuse(std::string("\"") + key + "\" is not computed here");
  }
  if (reader.Flag("use_bidirectional_attention", false)) {
    reader.Refuse("\"use_bidirectional_attention\" is not computed here");
  }
  if (!family.attention_bias && reader.Flag("attention_bias", family.qkv_bias) != family.qkv_bias) {
    reader.Refuse(std::string("\"attention_bias\" means nothing in model_type ") +
                  family.model_type);
  }
  if (!family.mlp_bias && reader.Flag("mlp_bias", false)) {
    reader.Refuse(std::string("\"mlp_bias\" means nothing in model_type ") + family.model_type);
  }
  if (!reader.Has("architectures")) return;
  const json& list = reader.At("architectures");
  if (list.is_array() && !list.empty() && list[0] != family.architecture) {
    reader.Refuse("\"architectures\" " + list.dump() + ": only " + family.architecture +
                  " can be read");
  }
}

void ReadShape(const Reader& reader, const Family& family, ModelConfig* model) {
  model->vocab_size = reader.Count("vocab_size", 2, 1e7);
  model->d_model = reader.Count("hidden_size", 2, 65536);
  model->ffn = reader.Count("intermediate_size", 1, 262144);
  model->layers = reader.Count("num_hidden_layers", 1, 1000);
  model->heads = reader.Count("num_attention_heads", 1, 1024);
  if (family.kv_heads_needed && !reader.Names("num_key_value_heads")) {
    reader.Refuse("\"num_key_value_heads\" is missing");
  }
  model->kv_heads = reader.Count("num_key_value_heads", 1, 1024, model->heads);
  model->head_size = reader.Count("head_dim", 2, 65536, family.head_dim);
  model->context = reader.Count("max_position_embeddings", 2, kLargestCount);
  model->norm_eps = reader.Real("rms_norm_eps", 0, 1e-2, 1e-6);
}

void ReadActivation(const Reader& reader, const Family& family, ModelConfig* model) {
  const char* key =
      family.gemma && reader.Has("hidden_activation") ? "hidden_activation" : "hidden_act";
  const std::string name = reader.Text(key, family.gemma ? "gelu_pytorch_tanh" : "silu");
  if (name != "silu" && name != "swish" && name != "gelu_pytorch_tanh") {
    reader.Refuse(std::string("\"") + key + "\" " + name +
                  " is not computed here; silu and gelu_pytorch_tanh are");
  }
  model->gelu = name == "gelu_pytorch_tanh";
}

// Returns the windows that layer_types gives.
std::vector<bool> ReadLayerTypes(const Reader& reader, int64_t layers) {
  const json& types = reader.At("layer_types");
  if (!types.is_array() || types.size() != static_cast<size_t>(layers)) {
    reader.Refuse("\"layer_types\" does not list one type for each layer");
  }
  std::vector<bool> windowed;
  for (const json& type : types) {
    if (type != "full_attention" && type != "sliding_attention") {
      reader.Refuse("\"layer_types\": " + type.dump() +
                    " is not computed here; full_attention and sliding_attention are");
    }
    windowed.push_back(type == "sliding_attention");
  }
  return windowed;
}

void ReadWindows(const Reader& reader, const Family& family, ModelConfig* model) {
  const int64_t layers = model->layers;
  const bool by_type = reader.Has("layer_types");
  const std::vector<bool> typed = by_type ? ReadLayerTypes(reader, layers) : std::vector<bool>();
  const bool null = reader.Names("sliding_window") && !reader.Has("sliding_window");
  const bool unused =
      family.windows == Windows::kAfter && !reader.Flag("use_sliding_window", false);
  if (family.windows == Windows::kNever || null || unused) {
    if (std::count(typed.begin(), typed.end(), true) == 0) return;
    const char* why = null     ? "\"sliding_window\" is null"
                      : unused ? "\"use_sliding_window\" is false"
                               : "its model_type has no windows";
    reader.Refuse(std::string("\"layer_types\" has sliding_attention, but ") + why);
  }
  model->window = reader.Count("sliding_window", 1, kLargestCount, family.window);
  model->windowed.assign(static_cast<size_t>(layers), true);
  const int64_t after = family.windows == Windows::kAfter
                            ? reader.Count("max_window_layers", 0, kLargestCount, 28)
                            : 0;
  const int64_t pattern = family.windows == Windows::kMany
                              ? reader.Count("sliding_window_pattern", 1, kLargestCount, 6)
                              : kLargestCount;
  for (int64_t layer = 0; layer < layers; ++layer) {
    model->windowed[static_cast<size_t>(layer)] = layer >= after && (layer + 1) % pattern != 0;
  }
  if (by_type) model->windowed = typed;
}

RopeScaling ReadScaling(const Reader& reader) {
  RopeScaling scaling;
  scaling.kind = reader.Text("rope_type", reader.Text("type", "default"));
  if (reader.Real("partial_rotary_factor", 0, 1, 1.0) != 1.0) {
    reader.Refuse("\"partial_rotary_factor\" is not computed here");
  }
  if (scaling.kind == "default") return scaling;
  if (scaling.kind != "linear" && scaling.kind != "llama3") {
    reader.Refuse("rope type \"" + scaling.kind +
                  "\" is not computed here; default, linear and llama3 are");
  }
  scaling.factor = reader.Real("factor", 1, 1e6);
  if (scaling.kind == "linear") return scaling;
  scaling.low_freq_factor = reader.Real("low_freq_factor", 1e-3, 1e6);
  scaling.high_freq_factor = reader.Real("high_freq_factor", 1e-3, 1e6);
  scaling.original_context = reader.Count("original_max_position_embeddings", 1, kLargestCount);
  if (scaling.high_freq_factor <= scaling.low_freq_factor) {
    reader.Refuse("\"high_freq_factor\" is not above \"low_freq_factor\"");
  }
  return scaling;
}

// Reads rope_parameters (version 5), and where it is missing, rope_scaling and rope_theta.
void ReadRope(const Reader& reader, const Family& family, ModelConfig* model) {
  const double low = 1, high = 1e12;
  if (reader.Real("partial_rotary_factor", 0, 1, 1.0) != 1.0) {
    reader.Refuse("\"partial_rotary_factor\" is not computed here");
  }
  model->rope_theta = reader.Real("rope_theta", low, high, family.rope_theta);
  if (family.gemma) model->local_rope_theta = reader.Real("rope_local_base_freq", low, high, 1e4);
  if (!reader.Has("rope_parameters")) {
    if (reader.Has("rope_scaling"))
      model->rope_scaling = ReadScaling(reader.Inside("rope_scaling"));
    return;
  }
  const Reader rope = reader.Inside("rope_parameters");
  if (!family.gemma && (rope.Has("full_attention") || rope.Has("sliding_attention"))) {
    rope.Refuse(std::string("model_type ") + family.model_type + " has one kind of positions");
  }
  const Reader full = rope.Has("full_attention") ? rope.Inside("full_attention") : rope;
  model->rope_theta = full.Real("rope_theta", low, high, model->rope_theta);
  model->rope_scaling = ReadScaling(full);
  if (!rope.Has("sliding_attention")) return;
  const Reader sliding = rope.Inside("sliding_attention");
  model->local_rope_theta = sliding.Real("rope_theta", low, high, model->local_rope_theta);
  if (ReadScaling(sliding).kind != "default") {
    sliding.Refuse("a rope type other than default is not computed in layers with a window");
  }
}

}  // namespace

ModelConfig ModelFromHuggingFace(const json& config, const std::string& path) {
  const Reader reader(config, path);
  const Family& family = FamilyOf(reader);
  RefuseOtherParts(reader, family);
  ModelConfig model;
  ReadShape(reader, family, &model);
  ReadActivation(reader, family, &model);
  ReadWindows(reader, family, &model);
  ReadRope(reader, family, &model);
  model.tied_head = reader.Flag("tie_word_embeddings", family.tied_head);
  const bool biases = family.attention_bias && reader.Flag("attention_bias", false);
  model.qkv_bias = family.qkv_bias || biases;
  model.out_bias = biases;
  model.mlp_bias = family.mlp_bias && reader.Flag("mlp_bias", false);
  model.qk_norm = family.qk_norm;
  model.norm_offset = model.sandwich_norms = model.scaled_embedding = family.gemma;
  if (family.gemma) {
    model.query_scale = 1.0 / std::sqrt(reader.Real("query_pre_attn_scalar", 1e-3, 1e9, 256));
  }
  try {
    CheckModel(model);
  } catch (const Error& error) {
    reader.Refuse(error.what());
  }
  return model;
}

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

std::vector<int64_t> StopTokens(const json& config, const json& generation_config,
                                const std::string& path) {
  const auto has = [](const json& object) {
    return object.is_object() && object.contains("eos_token_id") &&
           !object["eos_token_id"].is_null();
  };
  if (!has(generation_config) && !has(config)) return {};
  const json& eos = (has(generation_config) ? generation_config : config)["eos_token_id"];
  std::vector<int64_t> tokens;
  for (const json& token : eos.is_array() ? eos : json::array({eos})) {
    if (!token.is_number_integer() || token.get<double>() < 0 ||
        token.get<double>() > kLargestCount) {
      throw DataError("read model " + path + ": \"eos_token_id\" " + eos.dump() +
                      " is no number and no list of numbers");
    }
    tokens.push_back(token.get<int64_t>());
  }
  return tokens;
}

void SetHuggingFaceDtype(const std::string& dtype, json* config) {
  if (config->contains("dtype")) (*config)["dtype"] = dtype;
  if (!config->contains("dtype") || config->contains("torch_dtype")) {
    (*config)["torch_dtype"] = dtype;
  }
}

}  // namespace gpuctl::trainer
