// The differentiable pieces of the network that ATen does not have. Each has its own backward,
// which keeps only the data that it needs.
//
// Shapes: B windows, T tokens of a window, N = B T rows, D d_model, H heads, K kv_heads, E
// head_dim, F ffn, V vocabulary. All inputs are contiguous. They compute in the dtype of their
// inputs, with sums and exponentials in fp32 when that is bf16, on any device, and on any thread.

#ifndef TRAINER_MODEL_FUNCTIONS_H_
#define TRAINER_MODEL_FUNCTIONS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trainer/config/config.h"
#include "trainer/model/dispatch.h"

namespace gpuctl::trainer {

// Returns the rows of the table for int64 tokens [N], as [N, D]. Differentiable in the table.
at::Tensor Embedding(const at::Tensor& table_vd, const at::Tensor& tokens_n);

// Returns x / sqrt(mean(x^2) + eps) * weight, row by row; with `offset` times 1 + weight.
at::Tensor RmsNorm(const at::Tensor& x_nd, const at::Tensor& weight_d, double eps,
                   bool offset = false);

// Returns silu(gate) * up, where gate and up are the two halves of each row of [N, 2F], or lie one
// behind the other as [2, N, F], which a GPU reads faster.
at::Tensor SwiGlu(const at::Tensor& gate_up);
// The same with GELU by tanh instead of silu.
at::Tensor GeGlu(const at::Tensor& gate_up);

// The cos and sin of the rotary angles, each [T, E/2], fp32 (fp64 on request).
struct RotaryTable {
  at::Tensor cos_te;
  at::Tensor sin_te;
};
// Angle of position t in pair e: t f with f = theta^(-2 e / E), changed by `scaling`. "llama3"
// divides by the factor where fewer than low_freq_factor turns of f fit into original_context,
// leaves f where more than high_freq_factor fit, and between them goes from one to the other with
// the number of turns (Llama 3.1, arXiv 2407.21783 and its published code).
RotaryTable MakeRotaryTable(int64_t context, int64_t head_dim, double theta,
                            const at::TensorOptions& options, const RopeScaling& scaling = {});
// Returns the table's rows for each token of packed windows, [B T, E/2]: positions count from the
// first token of a document. `starts_bt` is as in AttentionShape.
RotaryTable RotaryOfDocuments(const RotaryTable& rotary, const at::Tensor& starts_bt);

struct AttentionShape {
  int64_t windows;     // B
  int64_t tokens;      // T, at most the table's
  int64_t heads;       // H
  int64_t kv_heads;    // K, divides H
  int64_t head_dim;    // E, even
  int64_t window = 0;  // keys that a query sees, its own included; 0: all before it
  double scale = 0;    // of the scores; 0: 1 / sqrt(E)
  int64_t past = 0;    // position of the first token
  // Several documents in a window: for each token the place in the window where its document
  // begins, int64 [B, T]. A query sees no key before that. Undefined: a window is one document.
  at::Tensor starts_bt = {};
  // The same for flash attention, where that is used.
  DocumentBounds documents = {};
};

// Returns the projection with each query and key head normed by RmsNorm; values stay as they are.
at::Tensor HeadNorm(const at::Tensor& qkv_nc, const at::Tensor& q_weight_e,
                    const at::Tensor& k_weight_e, const AttentionShape& shape, double eps,
                    bool offset);

// Returns causal self-attention of the fused projection [N, (H + 2K) E] as [N, H E], with rotary
// positions (rotate-half). Works by blocks of queries, and multiplies a block with no key after it.
// The rotary table has T rows, or, with starts_bt, those of RotaryOfDocuments.
at::Tensor CausalAttention(const at::Tensor& qkv_nc, const RotaryTable& rotary,
                           const AttentionShape& shape);

// The rotated keys and the values of the tokens so far, each [B K, room, E].
struct KeyValues {
  at::Tensor k_zse;
  at::Tensor v_zse;
};

// Does the same for tokens that follow `shape.past` others, whose keys and values are in `cache`;
// adds the new ones to it, with more room if that is needed. For generation: not differentiable.
at::Tensor CachedAttention(const at::Tensor& qkv_nc, const RotaryTable& rotary,
                           const AttentionShape& shape, KeyValues* cache);

// Returns scale * sum over the scored rows of -log softmax(x W^T)[target], 0-dimensional, fp32 (or
// fp64); a target of -1 is not scored. Only `chunk_rows` rows of logits exist at a time, forward
// and backward. Where W has a GradientSum (linear/matmul.h), the forward pass adds W's gradient to
// it, and the result must be the end of the graph. With `factors_n`, fp32 on the device of x, each
// row counts so many times. A frozen W may be in strips (linear/frozen_matrix.h).
at::Tensor LinearCrossEntropy(const at::Tensor& x_nd, const at::Tensor& weight_vd,
                              const at::Tensor& targets_n, double scale, int64_t chunk_rows,
                              const at::Tensor& factors_n = {});

}  // namespace gpuctl::trainer

#endif  // TRAINER_MODEL_FUNCTIONS_H_
