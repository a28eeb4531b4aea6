#include "trainer/model/gpt.h"

#include <ATen/ops/add.h>
#include <ATen/ops/embedding.h>

#include <algorithm>

#include "trainer/model/matmul.h"

namespace gpuctl::trainer {
namespace {

// Approximate bytes of logits that exist at a time.
constexpr int64_t kLogitBytes = 8 << 20;

at::Tensor AttentionPart(const GptShape& shape, const BlockWeights& w, const at::Tensor& x_nd,
                         int64_t windows, int64_t tokens) {
  const ModelConfig& c = shape.config;
  const at::Tensor qkv_nc = Linear(RmsNorm(x_nd, w.attention_norm_d, c.norm_eps), w.qkv_nd);
  const at::Tensor mixed_nc =
      CausalAttention(qkv_nc, shape.rotary, {windows, tokens, c.heads, c.kv_heads, c.head_dim()});
  return Linear(mixed_nc, w.out_dn);
}

at::Tensor FeedForwardPart(const GptShape& shape, const BlockWeights& w, const at::Tensor& x_nd) {
  const at::Tensor normed_nd = RmsNorm(x_nd, w.ffn_norm_d, shape.config.norm_eps);
  return Linear(SwiGlu(Linear(normed_nd, w.gate_up_nd)), w.down_df);
}

}  // namespace

GptShape MakeGptShape(const ModelConfig& config, const at::TensorOptions& options) {
  return {config, MakeRotaryTable(config.context, config.head_dim(), config.rope_theta, options)};
}

at::Tensor Hidden(const GptShape& shape, const GptWeights& weights, const at::Tensor& tokens_bt) {
  const int64_t windows = tokens_bt.size(0);
  const int64_t tokens = tokens_bt.size(1);
  at::Tensor x_nd = at::embedding(weights.embedding_vd, tokens_bt.reshape({-1}));
  for (const BlockWeights& block : weights.blocks) {
    x_nd = at::add(x_nd, AttentionPart(shape, block, x_nd, windows, tokens));
    x_nd = at::add(x_nd, FeedForwardPart(shape, block, x_nd));
  }
  return RmsNorm(x_nd, weights.final_norm_d, shape.config.norm_eps);
}

at::Tensor SummedLoss(const GptShape& shape, const GptWeights& weights, const at::Tensor& tokens_bt,
                      const at::Tensor& targets_bt, double scale) {
  const int64_t chunk_rows =
      std::max<int64_t>(64, kLogitBytes / 4 / shape.config.vocab_size / 64 * 64);
  return LinearCrossEntropy(Hidden(shape, weights, tokens_bt), weights.embedding_vd,
                            targets_bt.reshape({-1}), scale, chunk_rows);
}

}  // namespace gpuctl::trainer
