// On the CPU eight elements share one block of Philox: 16 bits decide about each.

#include "trainer/linear/dropout.h"

#include <ATen/Context.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "trainer/base/philox.h"
#include "trainer/linear/threads.h"

namespace gpuctl::trainer {
namespace {

constexpr int64_t kLanes = 8;
constexpr double kSteps = 65536;

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

// Writes the elements [begin, end) of a window; `begin` is a multiple of the lanes.
void Fill(uint64_t key, const Threshold& threshold, int64_t begin, int64_t end, float* factors) {
  const float choices[2] = {threshold.kept, 0.0f};
  const auto dropped = static_cast<uint32_t>(threshold.dropped);
  for (int64_t first = begin; first < end; first += kLanes) {
    const PhiloxBlock block =
        RandomBlock(key, RandomStream::kDropout, 0, static_cast<uint64_t>(first / kLanes));
    const int64_t lanes = std::min(kLanes, end - first);
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const uint32_t word = block[static_cast<size_t>(lane / 2)];
      const uint32_t value = lane % 2 == 0 ? word & 0xFFFF : word >> 16;
      factors[first + lane] = choices[value < dropped];
    }
  }
}

}  // namespace

at::Tensor DropoutFactors(const DropoutDraw& draw, uint32_t module, int64_t rows, int64_t columns,
                          const at::Device& device) {
  if (!device.is_cpu()) return DropoutFactorsByGenerator(draw, module, rows, columns, device);
  const at::Tensor factors_nd = at::empty({rows, columns}, at::kFloat);
  const Threshold threshold(draw.share);
  const int64_t count = draw.tokens * columns;
  for (int64_t window = 0; window < rows / draw.tokens; ++window) {
    const uint64_t key = KeyOf(draw, module, window);
    float* factors = factors_nd.data_ptr<float>() + window * count;
    ForRanges(count, RowGrain(1),
              [&](int64_t begin, int64_t end) { Fill(key, threshold, begin, end, factors); });
  }
  return factors_nd;
}

at::Tensor DropoutFactorsByGenerator(const DropoutDraw& draw, uint32_t module, int64_t rows,
                                     int64_t columns, const at::Device& device) {
  const Threshold threshold(draw.share);
  const at::Tensor factors_nd =
      at::empty({rows, columns}, at::TensorOptions(at::kFloat).device(device));
  at::Generator generator = at::globalContext().defaultGenerator(device);
  for (int64_t window = 0; window < rows / draw.tokens; ++window) {
    {
      const std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_current_seed(KeyOf(draw, module, window));
    }
    factors_nd.narrow(0, window * draw.tokens, draw.tokens)
        .bernoulli_(1 - static_cast<double>(threshold.dropped) / kSteps, generator);
  }
  return factors_nd.mul_(threshold.kept);
}

at::Tensor DropInputs(const DropoutDraw& draw, uint32_t module, const at::Tensor& x_nd) {
  const at::Tensor factors_nd =
      DropoutFactors(draw, module, x_nd.size(0), x_nd.size(1), x_nd.device());
  if (x_nd.scalar_type() == at::kFloat) return at::mul(x_nd, factors_nd);
  return at::mul(x_nd, factors_nd).to(x_nd.scalar_type());
}

}  // namespace gpuctl::trainer
