#include "trainer/optimizer/adamw.h"

#include <algorithm>
#include <cmath>

#include "trainer/base/vectors.h"

namespace gpuctl::trainer {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kPiece = 4096;

TRAINER_WIDEST_VECTORS
void Update(const AdamwScalars s, int64_t count, float clip, const float* __restrict gradient,
            float* __restrict parameter, float* __restrict exp_avg, float* __restrict exp_avg_sq) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * clip;
    const float m = exp_avg[i] + (1.0f - s.beta1) * (g - exp_avg[i]);
    const float v = s.beta2 * exp_avg_sq[i] + (1.0f - s.beta2) * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    parameter[i] = parameter[i] * s.shrink - s.rate * m / (std::sqrt(v) * s.root + s.eps);
  }
}

TRAINER_WIDEST_VECTORS
void Add(int64_t count, const float* __restrict from, float* __restrict into) {
  for (int64_t i = 0; i < count; ++i) into[i] += from[i];
}

TRAINER_WIDEST_VECTORS
void SquareLanes(int64_t count, const float* __restrict values, float* __restrict lanes) {
  for (int64_t i = 0; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] += values[i + lane] * values[i + lane];
  }
}

}  // namespace

void AdamwUpdate(const AdamwStep& s, at::Tensor parameter, at::Tensor gradient, at::Tensor exp_avg,
                 at::Tensor exp_avg_sq, const at::Tensor& clip) {
  const auto t = static_cast<double>(s.t);
  const double rate = s.lr / (1.0 - std::pow(s.beta1, t));
  const double root = std::sqrt(1.0 - std::pow(s.beta2, t));
  gradient.mul_(clip);
  exp_avg.lerp_(gradient, 1.0 - s.beta1);
  exp_avg_sq.mul_(s.beta2).addcmul_(gradient, gradient, 1.0 - s.beta2);
  parameter.mul_(1.0 - s.lr * s.weight_decay);
  parameter.addcdiv_(exp_avg, exp_avg_sq.sqrt().div_(root).add_(s.eps), -rate);
}

AdamwScalars::AdamwScalars(const AdamwStep& step) {
  const auto t = static_cast<double>(step.t);
  shrink = static_cast<float>(1.0 - step.lr * step.weight_decay);
  beta1 = static_cast<float>(step.beta1);
  beta2 = static_cast<float>(step.beta2);
  rate = static_cast<float>(step.lr / (1.0 - std::pow(step.beta1, t)));
  root = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(step.beta2, t)));
  eps = static_cast<float>(step.eps);
}

void AdamwUpdateCpu(const AdamwScalars& step, int64_t count, float clip, const float* gradient,
                    float* parameter, float* exp_avg, float* exp_avg_sq) {
  Update(step, count, clip, gradient, parameter, exp_avg, exp_avg_sq);
}

void AddInto(int64_t count, const float* from, float* into) { Add(count, from, into); }

double SumOfSquares(int64_t count, const float* values) {
  double total = 0;
  for (int64_t first = 0; first < count; first += kPiece) {
    const int64_t size = std::min(kPiece, count - first);
    float lanes[kLanes] = {};
    SquareLanes(size, values + first, lanes);
    for (const float lane : lanes) total += static_cast<double>(lane);
    for (int64_t i = size - size % kLanes; i < size; ++i) {
      total += static_cast<double>(values[first + i]) * static_cast<double>(values[first + i]);
    }
  }
  return total;
}

}  // namespace gpuctl::trainer
