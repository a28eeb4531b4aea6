// Splits the fused projection into rotated heads, differentiably. A part of CausalAttention.

#ifndef TRAINER_MODEL_HEADS_H_
#define TRAINER_MODEL_HEADS_H_

#include <ATen/core/Tensor.h>

#include "trainer/model/functions.h"

namespace gpuctl::trainer {

struct Heads {
  at::Tensor q_bhte;
  at::Tensor k_bkse;
  at::Tensor v_bkse;
};

// Splits [N, (H + 2K) E] into q, k and v; rotates q and k by their positions, multiplies q by
// q_scale. They are dense; with `by_token` the heads of a token lie side by side in memory, where
// no kernel for the CPU is used.
Heads SplitAndRotate(const at::Tensor& qkv_nc, const RotaryTable& rotary,
                     const AttentionShape& shape, double q_scale, bool by_token = false);

}  // namespace gpuctl::trainer

#endif  // TRAINER_MODEL_HEADS_H_
