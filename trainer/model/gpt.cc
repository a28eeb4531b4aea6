#include "trainer/model/gpt.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>

#include "trainer/linear/lora_linear.h"
#include "trainer/linear/recompute.h"
#include "trainer/linear/widths.h"
#include "trainer/model/transfer.h"

namespace gpuctl::trainer {
namespace {

// Bytes of logits that stay in the caches of a CPU, and the fewest rows that multiply at full
// speed.
constexpr int64_t kCachedLogitBytes = 8 << 20;
constexpr int64_t kCpuLogitRows = 256;
constexpr int64_t kDeviceLogitRows = 2048;
// With fewer rows, as in generation, one product takes less time than one for each half.
constexpr int64_t kHalvedRows = 64;
// Below this share of scored tokens, the others are left out of the head's products.
constexpr double kMostlyScored = 0.9;

AttentionShape AttentionOf(const ModelConfig& c, int64_t layer, const at::Tensor& tokens_bt,
                           const at::Tensor& starts_bt, const DocumentBounds& documents,
                           const GptCache* cache) {
  const int64_t window = c.HasWindow(layer) ? c.window : 0;
  // Without documents and windows the operator for whole windows is faster.
  const bool by_documents = starts_bt.defined() || (window > 0 && window < tokens_bt.size(1));
  return {tokens_bt.size(0), tokens_bt.size(1),
          c.heads,           c.kv_heads,
          c.head_dim(),      window,
          c.query_scale,     cache != nullptr ? cache->tokens : 0,
          starts_bt,         by_documents ? documents : DocumentBounds()};
}

// Returns where the documents of some windows begin, on `device`; each window is one without
// starts.
DocumentBounds BoundsOf(const at::Tensor& starts_bt, int64_t windows, int64_t tokens,
                        const at::Device& device) {
  std::vector<int32_t> bounds;
  DocumentBounds documents;
  const int64_t* starts = starts_bt.defined() ? starts_bt.data_ptr<int64_t>() : nullptr;
  const auto begin = [&](int64_t row) {
    if (!bounds.empty()) documents.longest = std::max(documents.longest, row - bounds.back());
    bounds.push_back(static_cast<int32_t>(row));
  };
  for (int64_t window = 0; window < windows; ++window) {
    for (int64_t t = 0; t < (starts == nullptr ? 1 : tokens); ++t) {
      if (starts == nullptr || starts[window * tokens + t] == t) begin(window * tokens + t);
    }
  }
  begin(windows * tokens);
  documents.bounds_d = ToDevice(at::tensor(bounds, at::kInt), device);
  return documents;
}

// Returns the same if flash attention is to use it, else nothing.
DocumentBounds DocumentsFor(const ModelConfig& c, const at::Tensor& x_nd,
                            const at::Tensor& tokens_bt, const at::Tensor& starts_bt) {
  const int64_t tokens = tokens_bt.size(1);
  const bool windowed = !c.windowed.empty() && c.window < tokens;
  const bool known = !starts_bt.defined() || starts_bt.is_cpu();
  if ((!starts_bt.defined() && !windowed) || !known) return {};
  if (!HasFlashAttention(x_nd, c.head_dim(), windowed)) return {};
  return BoundsOf(starts_bt.defined() ? starts_bt.contiguous() : starts_bt, tokens_bt.size(0),
                  tokens, x_nd.device());
}

at::Tensor AttentionPart(const GptShape& shape, const BlockWeights& w, const at::Tensor& x_nd,
                         const AttentionShape& attention, const RotaryTable& rotary,
                         KeyValues* cache) {
  const ModelConfig& c = shape.config;
  const at::Tensor normed_nd = RmsNorm(x_nd, w.attention_norm_d, c.norm_eps, c.norm_offset);
  at::Tensor qkv_nc = LoraLinear(normed_nd, w.qkv_nd, w.qkv_bias_n, w.qkv_lora);
  if (c.qk_norm) {
    qkv_nc = HeadNorm(qkv_nc, w.q_norm_e, w.k_norm_e, attention, c.norm_eps, c.norm_offset);
  }
  const at::Tensor mixed_nc = cache != nullptr ? CachedAttention(qkv_nc, rotary, attention, cache)
                                               : CausalAttention(qkv_nc, rotary, attention);
  const at::Tensor out_nd = LoraLinear(mixed_nc, w.out_dn, w.out_bias_d, w.out_lora);
  if (!c.sandwich_norms) return out_nd;
  return RmsNorm(out_nd, w.attention_out_norm_d, c.norm_eps, c.norm_offset);
}

at::Tensor FeedForwardPart(const GptShape& shape, const BlockWeights& w, const at::Tensor& x_nd) {
  const ModelConfig& c = shape.config;
  const at::Tensor normed_nd = RmsNorm(x_nd, w.ffn_norm_d, c.norm_eps, c.norm_offset);
  const bool halves =
      TakesDeviceRoutes(x_nd) && !UsesCpuKernels(x_nd) && x_nd.size(0) >= kHalvedRows;
  const at::Tensor gate_up =
      LoraLinear(normed_nd, w.gate_up_nd, w.gate_up_bias_n, w.gate_up_lora, halves);
  const at::Tensor out_nd =
      LoraLinear(c.gelu ? GeGlu(gate_up) : SwiGlu(gate_up), w.down_df, w.down_bias_d, w.down_lora);
  if (!c.sandwich_norms) return out_nd;
  return RmsNorm(out_nd, w.ffn_out_norm_d, c.norm_eps, c.norm_offset);
}

// Returns sqrt(d_model), rounded to the dtype of the weights as Gemma 3 does it.
double EmbeddingScale(const ModelConfig& config, const at::Tensor& weight) {
  const double scale = std::sqrt(static_cast<double>(config.d_model));
  return at::full({}, scale, at::TensorOptions(weight.scalar_type())).item<double>();
}

}  // namespace

GptShape MakeGptShape(const ModelConfig& config, const at::TensorOptions& options) {
  GptShape shape = {config,
                    MakeRotaryTable(config.context, config.head_dim(), config.rope_theta, options,
                                    config.rope_scaling),
                    {},
                    false};
  shape.local_rotary =
      config.local_rope_theta == 0
          ? shape.rotary
          : MakeRotaryTable(config.context, config.head_dim(), config.local_rope_theta, options);
  return shape;
}

int64_t LogitRows(const ModelConfig& config, bool on_cpu) {
  const int64_t cached = kCachedLogitBytes / 4 / config.vocab_size / 64 * 64;
  return std::max(cached, on_cpu ? kCpuLogitRows : kDeviceLogitRows);
}

at::Tensor Hidden(const GptShape& shape, const GptWeights& weights, const at::Tensor& tokens_bt,
                  const at::Tensor& host_starts_bt, GptCache* cache) {
  const ModelConfig& c = shape.config;
  const at::Tensor starts_bt = ToDevice(host_starts_bt, tokens_bt.device());
  const DocumentBounds documents =
      cache != nullptr ? DocumentBounds()
                       : DocumentsFor(c, weights.embedding_vd, tokens_bt, host_starts_bt);
  const auto at_documents = [&](const RotaryTable& table) {
    return starts_bt.defined() ? RotaryOfDocuments(table, starts_bt) : table;
  };
  const RotaryTable everywhere = at_documents(shape.rotary);
  const RotaryTable nearby = c.windowed.empty() ? everywhere : at_documents(shape.local_rotary);
  if (cache != nullptr) cache->layers.resize(weights.blocks.size());
  const at::Tensor tokens_n = tokens_bt.reshape({-1});
  at::Tensor x_nd = FrozenMatrix::IsInStrips(weights.embedding_vd)
                        ? FrozenMatrix(weights.embedding_vd, c.d_model).Rows(tokens_n)
                        : Embedding(weights.embedding_vd, tokens_n);
  if (c.scaled_embedding) x_nd = at::mul(x_nd, EmbeddingScale(c, weights.embedding_vd));
  const bool recomputes = shape.recompute && at::GradMode::is_enabled();
  std::vector<RecomputeRoom> rooms(weights.blocks.size());
  if (recomputes && x_nd.is_cpu()) {
    for (RecomputeRoom& room : rooms) room.result = at::empty_like(x_nd);
  }
  for (size_t i = 0; i < weights.blocks.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    const auto block = [&shape, &w = weights.blocks[i],
                        attention = AttentionOf(c, layer, tokens_bt, starts_bt, documents, cache),
                        rotary = c.HasWindow(layer) ? nearby : everywhere,
                        seen = cache != nullptr ? &cache->layers[i]
                                                : nullptr](const at::Tensor& in_nd) {
      const at::Tensor mixed_nd =
          at::add(in_nd, AttentionPart(shape, w, in_nd, attention, rotary, seen));
      return at::add(mixed_nd, FeedForwardPart(shape, w, mixed_nd));
    };
    x_nd = recomputes ? Recomputed(block, x_nd, rooms[i]) : block(x_nd);
  }
  if (cache != nullptr) cache->tokens += tokens_bt.size(1);
  return RmsNorm(x_nd, weights.final_norm_d, c.norm_eps, c.norm_offset);
}

at::Tensor SummedLoss(const GptShape& shape, const GptWeights& weights, const at::Tensor& tokens_bt,
                      const at::Tensor& targets_bt, double scale, const at::Tensor& starts_bt) {
  at::Tensor x_nd = Hidden(shape, weights, tokens_bt, starts_bt);
  at::Tensor targets_n = targets_bt.reshape({-1});
  const at::Tensor scored_n = at::nonzero(at::ge(targets_n, 0)).squeeze(1);
  if (static_cast<double>(scored_n.numel()) < kMostlyScored * static_cast<double>(x_nd.size(0))) {
    x_nd = at::index_select(x_nd, 0, ToDevice(scored_n, x_nd.device()));
    targets_n = at::index_select(targets_n, 0, scored_n);
  }
  return LinearCrossEntropy(x_nd, weights.head_vd, ToDevice(targets_n, x_nd.device()), scale,
                            LogitRows(shape.config, x_nd.is_cpu()));
}

Answers AnswersOf(const GptShape& shape, const GptWeights& weights, const at::Tensor& tokens_bt,
                  const at::Tensor& targets_bt, const at::Tensor& starts_bt) {
  Answers answers;
  const at::Tensor x_nd = Hidden(shape, weights, tokens_bt, starts_bt);
  const at::Tensor targets_n = targets_bt.reshape({-1});
  const at::Tensor scored_n = at::nonzero(at::ge(targets_n, 0)).squeeze(1);
  const int64_t* scored = scored_n.data_ptr<int64_t>();
  for (int64_t b = 1; b <= targets_bt.size(0); ++b) {
    answers.ends.push_back(
        std::lower_bound(scored, scored + scored_n.numel(), b * targets_bt.size(1)) - scored);
  }
  answers.x_nd = at::index_select(x_nd, 0, ToDevice(scored_n, x_nd.device()));
  answers.targets_n = ToDevice(at::index_select(targets_n, 0, scored_n), x_nd.device());
  return answers;
}

std::vector<float> LogProbabilities(const GptShape& shape, const GptWeights& weights,
                                    const Answers& answers) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> losses;
  int64_t begin = 0;
  for (const int64_t end : answers.ends) {
    losses.push_back(LinearCrossEntropy(answers.x_nd.narrow(0, begin, end - begin), weights.head_vd,
                                        answers.targets_n.narrow(0, begin, end - begin), 1.0,
                                        LogitRows(shape.config, answers.x_nd.is_cpu())));
    begin = end;
  }
  const at::Tensor read_b = ToHost(at::stack(losses).neg_());
  return {read_b.data_ptr<float>(), read_b.data_ptr<float>() + read_b.numel()};
}

at::Tensor WeightedLoss(const GptShape& shape, const GptWeights& weights, const Answers& answers,
                        const std::vector<double>& factors) {
  const at::Tensor factors_n = at::empty({answers.x_nd.size(0)}, at::kFloat);
  int64_t at = 0;
  for (size_t b = 0; b < factors.size(); ++b) {
    for (; at < answers.ends[b]; ++at) {
      factors_n.data_ptr<float>()[at] = static_cast<float>(factors[b]);
    }
  }
  return LinearCrossEntropy(answers.x_nd, weights.head_vd, answers.targets_n, 1.0,
                            LogitRows(shape.config, answers.x_nd.is_cpu()),
                            ToDevice(factors_n, answers.x_nd.device()));
}

}  // namespace gpuctl::trainer
