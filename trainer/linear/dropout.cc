// Eight elements share one block of Philox: 16 bits decide about each.

#include "trainer/linear/dropout.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>

#include "trainer/base/philox.h"

namespace gpuctl::trainer {
namespace {

constexpr int64_t kLanes = 8;
constexpr double kSteps = 65536;
constexpr int64_t kLow32 = 0xFFFFFFFF;

struct Threshold {
  explicit Threshold(double share)
      : dropped(std::llround(share * kSteps)),
        kept(static_cast<float>(kSteps / (kSteps - static_cast<double>(dropped)))) {}
  int64_t dropped;  // values below it are left out
  float kept;       // the factor of the others
};

uint64_t KeyOf(const DropoutDraw& draw, uint32_t module, int64_t window) {
  return Random64(draw.seed, RandomStream::kDropoutKey, module,
                  static_cast<uint64_t>(draw.first_window + window));
}

void FillWindow(uint64_t key, const Threshold& threshold, int64_t count, float* factors) {
  const float choices[2] = {threshold.kept, 0.0f};
  const auto dropped = static_cast<uint32_t>(threshold.dropped);
  for (int64_t first = 0; first < count; first += kLanes) {
    const PhiloxBlock block =
        RandomBlock(key, RandomStream::kDropout, 0, static_cast<uint64_t>(first / kLanes));
    const int64_t lanes = std::min(kLanes, count - first);
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const uint32_t word = block[static_cast<size_t>(lane / 2)];
      const uint32_t value = lane % 2 == 0 ? word & 0xFFFF : word >> 16;
      factors[first + lane] = choices[value < dropped];
    }
  }
}

// Returns the high and low words of constant * x, for int64 tensors of 32-bit values. The product
// wraps around, which keeps its bits.
std::pair<at::Tensor, at::Tensor> WideProduct(int64_t constant, const at::Tensor& x) {
  const at::Tensor product = at::mul(x, constant);
  return {product.bitwise_right_shift(32).bitwise_and_(kLow32), product.bitwise_and(kLow32)};
}

// Returns the 16-bit values of one window's elements, int64.
at::Tensor WindowValues(uint64_t key, int64_t count, const at::Device& device) {
  const at::Tensor index =
      at::arange((count + kLanes - 1) / kLanes, at::TensorOptions(at::kLong).device(device));
  at::Tensor c[4] = {index.bitwise_and(kLow32), index.bitwise_right_shift(32),
                     at::full_like(index, 0),
                     at::full_like(index, static_cast<int64_t>(RandomStream::kDropout))};
  int64_t k0 = static_cast<int64_t>(key & kLow32), k1 = static_cast<int64_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const auto [high0, low0] = WideProduct(0xD2511F53, c[0]);
    const auto [high1, low1] = WideProduct(0xCD9E8D57, c[2]);
    c[0] = high1.bitwise_xor(c[1]).bitwise_xor_(k0);
    c[2] = high0.bitwise_xor(c[3]).bitwise_xor_(k1);
    c[1] = low1;
    c[3] = low0;
    k0 = (k0 + 0x9E3779B9) & kLow32;
    k1 = (k1 + 0xBB67AE85) & kLow32;
  }
  std::vector<at::Tensor> lanes;
  for (const at::Tensor& word : c) {
    lanes.push_back(word.bitwise_and(0xFFFF));
    lanes.push_back(word.bitwise_right_shift(16));
  }
  return at::stack(lanes, 1).view({-1}).narrow(0, 0, count);
}

}  // namespace

at::Tensor DropoutFactors(const DropoutDraw& draw, uint32_t module, int64_t rows, int64_t columns,
                          const at::Device& device) {
  if (!device.is_cpu()) return DropoutFactorsByTensors(draw, module, rows, columns, device);
  const at::Tensor factors_nd = at::empty({rows, columns}, at::kFloat);
  const Threshold threshold(draw.share);
  const int64_t count = draw.tokens * columns;
  for (int64_t window = 0; window < rows / draw.tokens; ++window) {
    FillWindow(KeyOf(draw, module, window), threshold, count,
               factors_nd.data_ptr<float>() + window * count);
  }
  return factors_nd;
}

at::Tensor DropoutFactorsByTensors(const DropoutDraw& draw, uint32_t module, int64_t rows,
                                   int64_t columns, const at::Device& device) {
  const Threshold threshold(draw.share);
  const at::Tensor factors_nd =
      at::empty({rows, columns}, at::TensorOptions(at::kFloat).device(device));
  for (int64_t window = 0; window < rows / draw.tokens; ++window) {
    const at::Tensor values =
        WindowValues(KeyOf(draw, module, window), draw.tokens * columns, device);
    factors_nd.narrow(0, window * draw.tokens, draw.tokens)
        .view({-1})
        .copy_(values.ge(threshold.dropped))
        .mul_(threshold.kept);
  }
  return factors_nd;
}

at::Tensor DropInputs(const DropoutDraw& draw, uint32_t module, const at::Tensor& x_nd) {
  const at::Tensor factors_nd =
      DropoutFactors(draw, module, x_nd.size(0), x_nd.size(1), x_nd.device());
  if (x_nd.scalar_type() == at::kFloat) return at::mul(x_nd, factors_nd);
  return at::mul(x_nd, factors_nd).to(x_nd.scalar_type());
}

}  // namespace gpuctl::trainer
