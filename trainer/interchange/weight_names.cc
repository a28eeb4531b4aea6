#include "trainer/interchange/weight_names.h"

#include <set>

#include "trainer/base/error.h"

namespace gpuctl::trainer {
namespace {

// Makes the names of one block.
class BlockNames {
 public:
  BlockNames(const ModelConfig& model, int64_t layer, std::vector<WeightName>* names)
      : model_(model),
        stored_("model.layers." + std::to_string(layer) + "."),
        gguf_("blk." + std::to_string(layer) + "."),
        names_(names) {}

  void Add() {
    const int64_t d = model_.d_model, f = model_.ffn;
    const int64_t q = model_.heads * model_.head_dim(), kv = model_.kv_heads * model_.head_dim();
    const bool sandwich = model_.sandwich_norms;
    Norm("input_layernorm", "attn_norm", d);
    Linear("self_attn.q_proj", "attn_q", q, d, model_.qkv_bias, model_.heads);
    Linear("self_attn.k_proj", "attn_k", kv, d, model_.qkv_bias, model_.kv_heads);
    Linear("self_attn.v_proj", "attn_v", kv, d, model_.qkv_bias, 0);
    Linear("self_attn.o_proj", "attn_output", d, q, model_.out_bias, 0);
    if (model_.qk_norm) {
      Norm("self_attn.q_norm", "attn_q_norm", model_.head_dim());
      Norm("self_attn.k_norm", "attn_k_norm", model_.head_dim());
    }
    Norm("post_attention_layernorm", sandwich ? "post_attention_norm" : "ffn_norm", d);
    if (sandwich) {
      Norm("pre_feedforward_layernorm", "ffn_norm", d);
      Norm("post_feedforward_layernorm", "post_ffw_norm", d);
    }
    Linear("mlp.gate_proj", "ffn_gate", f, d, model_.mlp_bias, 0);
    Linear("mlp.up_proj", "ffn_up", f, d, model_.mlp_bias, 0);
    Linear("mlp.down_proj", "ffn_down", d, f, model_.mlp_bias, 0);
  }

 private:
  void Norm(const char* stored, const char* gguf, int64_t width) {
    names_->push_back({stored_ + stored + ".weight", gguf_ + gguf + ".weight", {width}});
  }
  void Linear(const char* stored, const char* gguf, int64_t rows, int64_t columns, bool bias,
              int64_t heads) {
    names_->push_back(
        {stored_ + stored + ".weight", gguf_ + gguf + ".weight", {rows, columns}, heads});
    if (bias)
      names_->push_back({stored_ + stored + ".bias", gguf_ + gguf + ".bias", {rows}, heads});
  }

  const ModelConfig& model_;
  const std::string stored_;
  const std::string gguf_;
  std::vector<WeightName>* const names_;
};

bool Ends(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

std::vector<WeightName> WeightNames(const ModelConfig& model) {
  std::vector<WeightName> names;
  const std::vector<int64_t> table = {model.vocab_size, model.d_model};
  names.push_back({"model.embed_tokens.weight", "token_embd.weight", table});
  for (int64_t layer = 0; layer < model.layers; ++layer) BlockNames(model, layer, &names).Add();
  names.push_back({"model.norm.weight", "output_norm.weight", {model.d_model}});
  if (!model.tied_head) names.push_back({"lm_head.weight", "output.weight", table});
  return names;
}

void CheckWeights(const std::vector<WeightName>& names,
                  const std::map<std::string, StoredPlace>& places, bool tied_head,
                  const std::string& folder) {
  const auto refuse = [&](const std::string& why) {
    throw DataError("read weights " + folder + ": they are not those of config.json: " + why);
  };
  std::set<std::string> known;
  for (const WeightName& name : names) {
    known.insert(name.stored);
    const auto found = places.find(name.stored);
    if (found == places.end()) refuse(name.stored + " is missing");
    if (found->second.tensor.shape != name.shape) refuse(name.stored + " has another shape");
  }
  for (const auto& [name, place] : places) {
    const bool unused =
        Ends(name, "rotary_emb.inv_freq") || (tied_head && name == "lm_head.weight");
    if (!unused && known.count(name) == 0) refuse(name + " is no part of this model");
  }
}

}  // namespace gpuctl::trainer
