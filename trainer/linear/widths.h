// Chooses the arithmetic for a tensor.

#ifndef TRAINER_LINEAR_WIDTHS_H_
#define TRAINER_LINEAR_WIDTHS_H_

#include <ATen/core/Tensor.h>

namespace gpuctl::trainer {

inline bool IsHalfWidth(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
}

// Returns fp32 for the half widths, else the tensor itself, without a copy.
inline at::Tensor Widen(const at::Tensor& x) { return IsHalfWidth(x) ? x.to(at::kFloat) : x; }

// True when the loops of trainer/cpu apply.
inline bool UsesCpuKernels(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kFloat;
}

}  // namespace gpuctl::trainer

#endif  // TRAINER_LINEAR_WIDTHS_H_
