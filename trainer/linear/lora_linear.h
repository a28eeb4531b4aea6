// A frozen matrix of the model with low-rank adapters beside it (LoRA, Hu et al., arXiv 2106.09685;
// DoRA, Liu et al., arXiv 2402.09353), as the peft library computes them.
//
// The model has q, k and v in one matrix, gate and up in another; adapters belong to the parts.
// Shapes: N rows, D inputs, C rows of the matrix, P adapted parts, r rank, c rows of the parts.

#ifndef TRAINER_LINEAR_LORA_LINEAR_H_
#define TRAINER_LINEAR_LORA_LINEAR_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/linear/dropout.h"
#include "trainer/linear/frozen_matrix.h"

namespace gpuctl::trainer {

// Rows of the matrix that have an adapter.
struct LoraPart {
  int64_t first_row;
  int64_t rows;
  uint32_t module;  // its number in the model, for dropout
};

// The adapters of one matrix. Without any, a_rd is undefined.
struct LoraWeights {
  std::vector<int64_t> packed_rows;  // the matrix is in 4 bits, in parts of these rows; else empty
  std::vector<LoraPart> parts;
  double scale = 0;
  at::Tensor a_rd;                          // [P r, D], one part below another
  at::Tensor b_cr;                          // [c, r], likewise
  at::Tensor magnitude_c;                   // DoRA: the length of each row; else undefined
  at::Tensor base_length_c;                 // DoRA: the length of the matrix's rows, fp32
  std::shared_ptr<const DropoutDraw> draw;  // of the passes that follow; may be null
};

// Returns x W^T + bias [N, C], and in each part scale (B A x) with it; x of the adapters goes
// through dropout. With magnitudes m the part is m / |W + scale B A| (W x + scale B A x) + bias,
// where the lengths of the rows count as constants. Differentiable in x and in the adapters; beside
// adapters, in strips and in 4 bits, W and bias are frozen. In `halves` the result is [2, N, C /
// 2], as Linear has it, and each part is one of the halves.
at::Tensor LoraLinear(const at::Tensor& x_nd, const at::Tensor& weight_cd, const at::Tensor& bias_c,
                      const LoraWeights& lora, bool halves = false);

// Returns the length of each row of W + scale B A, fp32 (or fp64), for the rows of one part. The
// lengths of the rows of W are given.
at::Tensor AdaptedRowLengths(const FrozenMatrix& weight, const LoraPart& part,
                             const at::Tensor& length_c, const at::Tensor& a_rd,
                             const at::Tensor& b_cr, double scale);

}  // namespace gpuctl::trainer

#endif  // TRAINER_LINEAR_LORA_LINEAR_H_
