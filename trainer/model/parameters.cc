#include "trainer/model/parameters.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include <cmath>

#include "trainer/base/error.h"
#include "trainer/base/philox.h"

namespace gpuctl::trainer {
namespace {

constexpr size_t kPerBlock = 6;

void AppendBlockSpecs(const ModelConfig& c, int64_t layer, std::vector<ParameterSpec>* specs) {
  const std::string name = "model.layers." + std::to_string(layer) + ".";
  const int64_t q_rows = c.heads * c.head_dim();
  const int64_t kv_rows = c.kv_heads * c.head_dim();
  const double std = 0.02;
  const double residual_std = 0.02 / std::sqrt(2.0 * static_cast<double>(c.layers));
  specs->push_back({{c.d_model}, false, 0, {{name + "input_layernorm.weight", 0, c.d_model}}});
  specs->push_back({{q_rows + 2 * kv_rows, c.d_model},
                    true,
                    std,
                    {{name + "self_attn.q_proj.weight", 0, q_rows},
                     {name + "self_attn.k_proj.weight", q_rows, kv_rows},
                     {name + "self_attn.v_proj.weight", q_rows + kv_rows, kv_rows}}});
  specs->push_back({{c.d_model, q_rows},
                    true,
                    residual_std,
                    {{name + "self_attn.o_proj.weight", 0, c.d_model}}});
  specs->push_back(
      {{c.d_model}, false, 0, {{name + "post_attention_layernorm.weight", 0, c.d_model}}});
  specs->push_back(
      {{2 * c.ffn, c.d_model},
       true,
       std,
       {{name + "mlp.gate_proj.weight", 0, c.ffn}, {name + "mlp.up_proj.weight", c.ffn, c.ffn}}});
  specs->push_back(
      {{c.d_model, c.ffn}, true, residual_std, {{name + "mlp.down_proj.weight", 0, c.d_model}}});
}

}  // namespace

std::vector<ParameterSpec> ParameterSpecs(const ModelConfig& config) {
  std::vector<ParameterSpec> specs;
  specs.push_back({{config.vocab_size, config.d_model},
                   true,
                   0.02,
                   {{"model.embed_tokens.weight", 0, config.vocab_size}}});
  for (int64_t layer = 0; layer < config.layers; ++layer) AppendBlockSpecs(config, layer, &specs);
  specs.push_back({{config.d_model}, false, 0, {{"model.norm.weight", 0, config.d_model}}});
  return specs;
}

GptWeights ArrangeWeights(const std::vector<at::Tensor>& flat, const ModelConfig& config) {
  GptWeights weights;
  weights.embedding_vd = flat.front();
  for (size_t layer = 0; layer < static_cast<size_t>(config.layers); ++layer) {
    const at::Tensor* block = &flat[1 + layer * kPerBlock];
    weights.blocks.push_back({block[0], block[1], block[2], block[3], block[4], block[5]});
  }
  weights.final_norm_d = flat.back();
  return weights;
}

std::vector<at::Tensor> InitializeWeights(const ModelConfig& config, uint64_t seed) {
  std::vector<at::Tensor> flat;
  for (const ParameterSpec& spec : ParameterSpecs(config)) {
    if (spec.init_std == 0) {
      flat.push_back(at::ones(spec.shape, at::kFloat));
      continue;
    }
    at::Tensor tensor = at::empty(spec.shape, at::kFloat);
    float* values = tensor.data_ptr<float>();
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      values[i] =
          static_cast<float>(spec.init_std * RandomNormal(seed, RandomStream::kInit, flat.size(),
                                                          static_cast<uint64_t>(i)));
    }
    flat.push_back(tensor);
  }
  return flat;
}

void AppendSlices(const std::vector<ParameterSpec>& specs, const std::vector<at::Tensor>& flat,
                  const std::string& prefix, NamedTensors* named) {
  for (size_t i = 0; i < specs.size(); ++i) {
    for (const RowSlice& slice : specs[i].slices) {
      named->emplace_back(prefix + slice.name, flat[i].narrow(0, slice.first_row, slice.rows));
    }
  }
}

void LoadSlices(const std::vector<ParameterSpec>& specs,
                const std::map<std::string, at::Tensor>& stored, const std::string& prefix,
                const std::string& what, const std::vector<at::Tensor>& flat) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < specs.size(); ++i) {
    for (const RowSlice& slice : specs[i].slices) {
      const std::string name = prefix + slice.name;
      const auto found = stored.find(name);
      if (found == stored.end()) throw DataError("load " + what + ": " + name + " is missing");
      const at::Tensor target = flat[i].narrow(0, slice.first_row, slice.rows);
      if (found->second.sizes() != target.sizes()) {
        throw DataError("load " + what + ": " + name + " has another shape");
      }
      target.copy_(found->second);
    }
  }
}

int64_t CountParameters(const ModelConfig& config) {
  int64_t total = 0;
  for (const ParameterSpec& spec : ParameterSpecs(config)) {
    int64_t count = 1;
    for (const int64_t extent : spec.shape) count *= extent;
    total += count;
  }
  return total;
}

double FlopsPerToken(const ModelConfig& config) {
  return 6.0 * static_cast<double>(CountParameters(config)) +
         6.0 * static_cast<double>(config.layers * config.d_model * config.context);
}

}  // namespace gpuctl::trainer
