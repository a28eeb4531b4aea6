// The loss of a language model whose head is frozen, for processors with cpu::Sgemm.
//
// The gradient by x needs the probabilities of all tokens, which are known only after the last one.
// So it is summed with exp(logit - reference) and divided in the end, as FlashAttention does it
// (Dao et al., 2022). The head's weight passes through memory once, and logits exist for one part
// of the vocabulary at a time.

#ifndef TRAINER_LINEAR_FROZEN_HEAD_H_
#define TRAINER_LINEAR_FROZEN_HEAD_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace gpuctl::trainer {

struct ScoredRows {
  at::Tensor target_n;  // below 0: not scored
  at::Tensor factor_n;  // how often a row counts, fp32; undefined: once each
  double scale;
};

// Whether FrozenHeadLoss takes these. The weight is dense or in strips (frozen_matrix.h).
bool HasFrozenHeadLoss(const at::Tensor& x_nd, const at::Tensor& weight);
// Returns scale * the sum of factor * (log sum over v of exp(x . w_v) - x . w_target), and writes
// its gradient by x to dx [N, D], dense.
double FrozenHeadLoss(const at::Tensor& x_nd, const at::Tensor& weight, const ScoredRows& of,
                      const at::Tensor& dx_nd);
// Returns the most bytes that it takes at a time, with `threads` threads, beside its arguments.
int64_t FrozenHeadBytes(int64_t rows, int64_t d_model, int64_t vocab_size, int threads);

}  // namespace gpuctl::trainer

#endif  // TRAINER_LINEAR_FROZEN_HEAD_H_
