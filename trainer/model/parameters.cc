#include "trainer/model/parameters.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/parallel.h"
#include "trainer/base/philox.h"
#include "trainer/base/text.h"

namespace gpuctl::trainer {
namespace {

// One weight of a block: its place and its spec.
struct BlockItem {
  at::Tensor BlockWeights::*place;
  ParameterSpec spec;
};

constexpr double kStd = 0.02;
// A thread should do more than it costs to begin one.
constexpr int64_t kInitGrain = 1 << 16;

// Makes the items of one block.
class BlockItems {
 public:
  BlockItems(const ModelConfig& config, int64_t layer)
      : c_(config), name_("model.layers." + std::to_string(layer) + ".") {}

  std::vector<BlockItem> Make() {
    const int64_t d = c_.d_model, q = c_.heads * c_.head_dim(), kv = c_.kv_heads * c_.head_dim();
    const double out_std = kStd / std::sqrt(2.0 * static_cast<double>(c_.layers));
    Norm(&BlockWeights::attention_norm_d, "input_layernorm", d, true);
    Matrix(&BlockWeights::qkv_nd, {q + 2 * kv, d}, kStd, Qkv(q, kv, ".weight"));
    Bias(&BlockWeights::qkv_bias_n, q + 2 * kv, Qkv(q, kv, ".bias"), c_.qkv_bias);
    Norm(&BlockWeights::q_norm_e, "self_attn.q_norm", c_.head_dim(), c_.qk_norm);
    Norm(&BlockWeights::k_norm_e, "self_attn.k_norm", c_.head_dim(), c_.qk_norm);
    Matrix(&BlockWeights::out_dn, {d, q}, out_std, {{"self_attn.o_proj.weight", 0, d}});
    Bias(&BlockWeights::out_bias_d, d, {{"self_attn.o_proj.bias", 0, d}}, c_.out_bias);
    Norm(&BlockWeights::attention_out_norm_d, "post_attention_layernorm", d, c_.sandwich_norms);
    Norm(&BlockWeights::ffn_norm_d,
         c_.sandwich_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm", d, true);
    Matrix(&BlockWeights::gate_up_nd, {2 * c_.ffn, d}, kStd, GateUp(".weight"));
    Bias(&BlockWeights::gate_up_bias_n, 2 * c_.ffn, GateUp(".bias"), c_.mlp_bias);
    Matrix(&BlockWeights::down_df, {d, c_.ffn}, out_std, {{"mlp.down_proj.weight", 0, d}});
    Bias(&BlockWeights::down_bias_d, d, {{"mlp.down_proj.bias", 0, d}}, c_.mlp_bias);
    Norm(&BlockWeights::ffn_out_norm_d, "post_feedforward_layernorm", d, c_.sandwich_norms);
    return std::move(items_);
  }

 private:
  static std::vector<RowSlice> Qkv(int64_t q, int64_t kv, const std::string& kind) {
    return {{"self_attn.q_proj" + kind, 0, q},
            {"self_attn.k_proj" + kind, q, kv},
            {"self_attn.v_proj" + kind, q + kv, kv}};
  }
  std::vector<RowSlice> GateUp(const std::string& kind) const {
    return {{"mlp.gate_proj" + kind, 0, c_.ffn}, {"mlp.up_proj" + kind, c_.ffn, c_.ffn}};
  }
  void Add(at::Tensor BlockWeights::*place, ParameterSpec spec) {
    for (RowSlice& slice : spec.slices) slice.name = name_ + slice.name;
    items_.push_back({place, std::move(spec)});
  }
  void Norm(at::Tensor BlockWeights::*place, const std::string& name, int64_t width, bool there) {
    if (!there) return;
    Add(place, {{width}, false, 0, c_.norm_offset ? 0.0 : 1.0, {{name + ".weight", 0, width}}});
  }
  void Matrix(at::Tensor BlockWeights::*place, const std::vector<int64_t>& shape, double std,
              const std::vector<RowSlice>& slices) {
    Add(place, {shape, true, std, 0, slices});
  }
  void Bias(at::Tensor BlockWeights::*place, int64_t width, const std::vector<RowSlice>& slices,
            bool there) {
    if (there) Add(place, {{width}, false, 0, 0, slices});
  }

  const ModelConfig& c_;
  const std::string name_;
  std::vector<BlockItem> items_;
};

}  // namespace

int64_t BlockOfName(const std::string& name) {
  long long block = -1;
  if (std::sscanf(name.c_str(), "model.layers.%lld.", &block) != 1) return -1;
  return block;
}

std::vector<ParameterSpec> ParameterSpecs(const ModelConfig& config) {
  const int64_t v = config.vocab_size, d = config.d_model;
  std::vector<ParameterSpec> specs;
  specs.push_back({{v, d}, true, kStd, 0, {{"model.embed_tokens.weight", 0, v}}});
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    for (BlockItem& item : BlockItems(config, layer).Make()) specs.push_back(std::move(item.spec));
  }
  specs.push_back({{d}, false, 0, config.norm_offset ? 0.0 : 1.0, {{"model.norm.weight", 0, d}}});
  if (!config.tied_head) specs.push_back({{v, d}, true, kStd, 0, {{"lm_head.weight", 0, v}}});
  return specs;
}

std::vector<bool> FrozenParameters(const std::vector<ParameterSpec>& specs,
                                   const std::vector<std::string>& patterns) {
  std::vector<bool> frozen, used(patterns.size());
  for (const ParameterSpec& spec : specs) {
    size_t matched = 0;
    for (const RowSlice& slice : spec.slices) {
      bool any = false;
      for (size_t i = 0; i < patterns.size(); ++i) {
        if (!MatchesPattern(slice.name, patterns[i])) continue;
        any = used[i] = true;
      }
      matched += any;
    }
    if (matched > 0 && matched < spec.slices.size()) {
      throw ConfigError("freeze weights: train.freeze matches a part of " + spec.slices[0].name +
                            " to " + spec.slices.back().name + ", which are one matrix here",
                        "freeze all of them or none");
    }
    frozen.push_back(matched > 0);
  }
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (used[i]) continue;
    throw ConfigError("freeze weights: train.freeze \"" + patterns[i] + "\" matches no weight",
                      "names look like " + specs[1].slices[0].name);
  }
  if (std::count(frozen.begin(), frozen.end(), false) == 0) {
    throw ConfigError("freeze weights: train.freeze leaves nothing to train");
  }
  return frozen;
}

GptWeights ArrangeWeights(const std::vector<at::Tensor>& flat, const ModelConfig& config) {
  GptWeights weights;
  auto next = flat.begin();
  weights.embedding_vd = *next++;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    BlockWeights block;
    for (const BlockItem& item : BlockItems(config, layer).Make()) block.*item.place = *next++;
    weights.blocks.push_back(std::move(block));
  }
  weights.final_norm_d = *next++;
  weights.head_vd = config.tied_head ? weights.embedding_vd : *next++;
  return weights;
}

std::vector<at::Tensor> InitializeWeights(const ModelConfig& config, uint64_t seed) {
  std::vector<at::Tensor> flat;
  for (const ParameterSpec& spec : ParameterSpecs(config)) {
    if (spec.init_std == 0) {
      flat.push_back(at::full(spec.shape, spec.init_value, at::kFloat));
      continue;
    }
    at::Tensor tensor = at::empty(spec.shape, at::kFloat);
    float* values = tensor.data_ptr<float>();
    ForRangesOnCores(tensor.numel(), kInitGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        values[i] =
            static_cast<float>(spec.init_std * RandomNormal(seed, RandomStream::kInit, flat.size(),
                                                            static_cast<uint64_t>(i)));
      }
    });
    flat.push_back(tensor);
  }
  return flat;
}

void AppendSlices(const std::vector<ParameterSpec>& specs, const std::vector<at::Tensor>& flat,
                  const std::string& prefix, NamedTensors* named) {
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!flat[i].defined()) continue;
    for (const RowSlice& slice : specs[i].slices) {
      named->emplace_back(prefix + slice.name, flat[i].narrow(0, slice.first_row, slice.rows));
    }
  }
}

void LoadSlices(const std::vector<ParameterSpec>& specs, const std::string& prefix,
                const std::string& what, const std::vector<at::Tensor>& flat,
                std::map<std::string, at::Tensor>* stored) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!flat[i].defined()) continue;
    for (const RowSlice& slice : specs[i].slices) {
      const std::string name = prefix + slice.name;
      const auto found = stored->find(name);
      if (found == stored->end()) throw DataError("load " + what + ": " + name + " is missing");
      const at::Tensor target = flat[i].narrow(0, slice.first_row, slice.rows);
      if (found->second.sizes() != target.sizes()) {
        throw DataError("load " + what + ": " + name + " has another shape");
      }
      target.copy_(found->second);
      stored->erase(found);
    }
  }
}

int64_t CountOf(const ParameterSpec& spec) {
  int64_t count = 1;
  for (const int64_t extent : spec.shape) count *= extent;
  return count;
}

int64_t CountParameters(const ModelConfig& config) {
  int64_t total = 0;
  for (const ParameterSpec& spec : ParameterSpecs(config)) total += CountOf(spec);
  return total;
}

double FlopsPerToken(const ModelConfig& config, const std::vector<std::string>& freeze) {
  const std::vector<ParameterSpec> specs = ParameterSpecs(config);
  const std::vector<bool> frozen = FrozenParameters(specs, freeze);
  double flops = 0;
  for (size_t i = config.tied_head ? 0 : 1; i < specs.size(); ++i) {
    flops += (frozen[i] ? 4.0 : 6.0) * static_cast<double>(CountOf(specs[i]));
  }
  int64_t keys = 0;  // of all layers
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    keys += config.HasWindow(layer) ? std::min(config.window, config.context) : config.context;
  }
  return flops + 6.0 * static_cast<double>(keys * config.heads * config.head_dim());
}

}  // namespace gpuctl::trainer
