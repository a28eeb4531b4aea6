// AdamW with decoupled weight decay (Loshchilov & Hutter), as torch.optim.AdamW does it:
//   p -= lr * decay * p;  m += (1 - b1)(g - m);  v = b2 v + (1 - b2) g^2
//   p -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)

#ifndef TRAINER_OPTIMIZER_ADAMW_H_
#define TRAINER_OPTIMIZER_ADAMW_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace gpuctl::trainer {

// Gradients in 16 bits are widened for one call of a kernel up to so many elements, unless a single
// parameter has more.
inline constexpr int64_t kMostWidened = 64 << 20;

struct AdamwStep {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0;  // of this tensor
  int64_t t = 1;            // 1 for the first update
};

// Updates tensors on any device; all are fp32 (or fp64) and contiguous. Overwrites `gradient`;
// `clip` is a 0-dimensional factor for it on the same device.
void AdamwUpdate(const AdamwStep& step, at::Tensor parameter, at::Tensor gradient,
                 at::Tensor exp_avg, at::Tensor exp_avg_sq, const at::Tensor& clip);

// The numbers of a step as the loop for the CPU uses them.
struct AdamwScalars {
  AdamwScalars(const AdamwStep& step);  // NOLINT(google-explicit-constructor)
  float shrink;                         // 1 - lr * decay
  float beta1;
  float beta2;
  float rate;  // lr / (1 - beta1^t)
  float root;  // 1 / sqrt(1 - beta2^t)
  float eps;
};

// Does the same for `count` floats in one pass, for the CPU. Safe on any thread if ranges do not
// overlap.
void AdamwUpdateCpu(const AdamwScalars& step, int64_t count, float clip, const float* gradient,
                    float* parameter, float* exp_avg, float* exp_avg_sq);

// AddInto computes into[i] = into[i] + from[i]; SumOfSquares returns the sum of squares. The order
// of additions depends on `count` alone.
void AddInto(int64_t count, const float* from, float* into);
double SumOfSquares(int64_t count, const float* values);

}  // namespace gpuctl::trainer

#endif  // TRAINER_OPTIMIZER_ADAMW_H_
