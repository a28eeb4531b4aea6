// Legend: n rows, r rows of one chunk, d d_model, v vocabulary.

#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "trainer/cpu/kernels.h"
#include "trainer/linear/frozen_head.h"
#include "trainer/linear/matmul.h"
#include "trainer/linear/threads.h"
#include "trainer/linear/widths.h"
#include "trainer/model/dispatch.h"
#include "trainer/model/functions.h"

namespace gpuctl::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A chunk's inputs beside x and W.
struct Rows {
  at::Tensor target_r;
  at::Tensor factor_r;  // perhaps undefined
  double scale;
};

// Where a chunk's results go. Loss and dw are added to.
struct Results {
  at::Tensor loss;
  at::Tensor dx_rd;  // undefined: not wanted
  at::Tensor dw_vd;  // fp32 at least; undefined: not wanted
  bool need_gradient() const { return dx_rd.defined() || dw_vd.defined(); }
};

// What is larger glibc takes from the system, page by page, each time.
constexpr int64_t kHeapElements = (32 << 20) / 4;

// Returns memory for a chunk's logits. On the CPU each thread keeps its own when it is large: to
// get it again takes longer than the softmax.
at::Tensor RoomForLogits(int64_t rows, int64_t columns, const at::TensorOptions& options) {
  const int64_t elements = rows * columns;
  if (!options.device().is_cpu() || elements < kHeapElements) {
    return at::empty({rows, columns}, options);
  }
  thread_local at::Tensor room;
  if (!room.defined() || room.numel() < elements || room.dtype() != options.dtype()) {
    room = at::Tensor();  // never two of them
    room = at::empty({elements}, options);
  }
  return room.narrow(0, 0, elements).view({rows, columns});
}

// The vocabulary is taken in parts of so many rows of W: their logits stay in a processor's cache.
constexpr int64_t kPartRows = 512;

// Logits by columns [v, r]: oneDNN multiplies fastest when W keeps its rows.
void ChunkOnCpu(const at::Tensor& x_rd, const at::Tensor& weight_vd, const Rows& of,
                const Results& results) {
  const int64_t rows = x_rd.size(0), vocab = weight_vd.size(0);
  const int64_t parts = (vocab + kPartRows - 1) / kPartRows;
  const at::Tensor logits_vr = RoomForLogits(vocab, rows, x_rd.options());
  float* const logits = logits_vr.data_ptr<float>();
  const int64_t* const targets = of.target_r.data_ptr<int64_t>();
  std::vector<float> largest(static_cast<size_t>(parts * rows)), sums(largest.size()),
      at_target(static_cast<size_t>(rows));
  ForRanges(vocab, kPartRows, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kPartRows) {
      const int64_t count = std::min(kPartRows, end - first);
      MatMulAlone(weight_vd.narrow(0, first, count), x_rd.t(), logits_vr.narrow(0, first, count));
      const int64_t at = first / kPartRows * rows;
      cpu::SumColumns(rows, count, logits + first * rows, largest.data() + at, sums.data() + at);
    }
  });
  for (int64_t row = 0; row < rows; ++row) {
    TORCH_CHECK_INDEX(targets[row] < vocab, "cross entropy: a target beyond the vocabulary");
    if (targets[row] >= 0) at_target[static_cast<size_t>(row)] = logits[targets[row] * rows + row];
  }
  const float* const factors = of.factor_r.defined() ? of.factor_r.data_ptr<float>() : nullptr;
  const auto scale = static_cast<float>(of.scale);
  results.loss.add_(cpu::SumLosses(rows, parts, {targets, at_target.data(), factors}, scale,
                                   largest.data(), sums.data()));
  if (!results.need_gradient()) return;
  ForRanges(vocab, kPartRows, [&](int64_t begin, int64_t end) {
    cpu::ScaleColumns(rows, end - begin, largest.data(), sums.data(), logits + begin * rows);
  });
  for (int64_t row = 0; row < rows; ++row) {
    if (targets[row] < 0) continue;
    logits[targets[row] * rows + row] -= factors == nullptr ? scale : scale * factors[row];
  }
  // The logits have become the gradient by them.
  if (results.dx_rd.defined()) {
    MatMulInto(logits_vr.t(), weight_vd, /*add=*/false, results.dx_rd);
  }
  if (results.dw_vd.defined()) MatMulInto(logits_vr, x_rd, /*add=*/true, results.dw_vd);
}

// In fp16 probabilities are multiplied by this, and rows of x divided, so that neither become 0.
constexpr double kFp16Boost = 64;

// The same with LibTorch's operators. The weights of rows are left out of the largest matrix, and
// come to x and dx instead.
void ChunkOnDevice(const at::Tensor& x_rd, const at::Tensor& weight_vd, const Rows& of,
                   const Results& results) {
  const at::ScalarType width = x_rd.scalar_type();
  const at::Tensor target_r1 = of.target_r.unsqueeze(1);
  const at::Tensor weight_r1 = target_r1.ge(0).to(results.loss.scalar_type()).mul_(of.scale);
  if (of.factor_r.defined()) weight_r1.mul_(of.factor_r.unsqueeze(1));
  const at::Tensor index_r1 = target_r1.clamp_min(0);
  at::Tensor log_p_rv =
      at::_log_softmax(WideProduct(x_rd, weight_vd.t()), 1, /*half_to_float=*/false);
  const at::Tensor log_p_r1 = log_p_rv.gather(1, index_r1);
  results.loss.sub_(at::mul(log_p_r1, weight_r1).sum());
  if (!results.need_gradient()) return;
  const double boost = width == at::kHalf ? kFp16Boost : 1;
  if (boost != 1) log_p_rv.add_(std::log(boost));
  at::Tensor p_rv = IsHalfWidth(x_rd) ? at::empty(log_p_rv.sizes(), x_rd.options()) : log_p_rv;
  at::exp_out(p_rv, log_p_rv);
  log_p_rv = at::Tensor();
  // p - 1 of the target in full width: it is tiny where the model is sure.
  p_rv.scatter_(1, index_r1, at::expm1(log_p_r1).mul_(boost).to(width));
  weight_r1.div_(boost);
  if (results.dx_rd.defined()) {
    at::Tensor dx_rd = results.dx_rd;
    at::mul_out(dx_rd, WideProduct(p_rv, weight_vd), weight_r1);
  }
  if (results.dw_vd.defined()) {
    AddWideProduct(results.dw_vd, p_rv.t(), at::mul(x_rd, weight_r1).to(width));
  }
}

// No inputs of the function in the sense of autograd; perhaps undefined.
struct Beside {
  at::Tensor weight_sum_vd;
  at::Tensor factors_n;
};

// The gradient is linear in the incoming one. So forward computes it while the chunk's logits
// exist, and backward only multiplies it. This keeps [N, D] and [V, D] instead of [N, V].
struct LinearCrossEntropyFunction : torch::autograd::Function<LinearCrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_nd,
                            const at::Tensor& weight_vd, const at::Tensor& targets_n, double scale,
                            int64_t chunk_rows, bool need_dx, bool need_dw, const Beside& beside) {
    const at::Tensor& sum_vd = beside.weight_sum_vd;
    const at::TensorOptions wide =
        x_nd.options().dtype(IsHalfWidth(x_nd) ? at::kFloat : x_nd.scalar_type());
    at::Tensor loss = at::zeros({}, wide);
    at::Tensor dx_nd = need_dx ? at::empty_like(x_nd) : at::Tensor();
    at::Tensor dw_vd;
    if (need_dw) dw_vd = sum_vd.defined() ? sum_vd : at::zeros_like(weight_vd, wide);
    const bool frozen = !need_dw && HasFrozenHeadLoss(x_nd, weight_vd);
    if (frozen) {
      loss.add_(FrozenHeadLoss(x_nd, weight_vd, {targets_n, beside.factors_n, scale}, dx_nd));
    }
    const auto chunk = UsesCpuKernels(x_nd) ? ChunkOnCpu : ChunkOnDevice;
    for (int64_t first = frozen ? x_nd.size(0) : 0; first < x_nd.size(0); first += chunk_rows) {
      const int64_t rows = std::min(chunk_rows, x_nd.size(0) - first);
      const at::Tensor x_rd = x_nd.narrow(0, first, rows);
      const Rows of = {
          targets_n.narrow(0, first, rows),
          beside.factors_n.defined() ? beside.factors_n.narrow(0, first, rows) : at::Tensor(),
          scale};
      chunk(x_rd, weight_vd, of,
            {loss, need_dx ? dx_nd.narrow(0, first, rows) : at::Tensor(), dw_vd});
    }
    if (sum_vd.defined()) {
      dw_vd = at::Tensor();
    } else if (need_dw) {
      dw_vd = dw_vd.to(weight_vd.scalar_type());
    }
    context->saved_data["summed"] = sum_vd.defined();
    context->save_for_backward({dx_nd, dw_vd});
    return loss;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& d_loss = gradients[0];
    // It is nearly always exactly 1. On the CPU the check costs nothing and saves two passes.
    const bool one = d_loss.is_cpu() && d_loss.item<double>() == 1.0;
    TORCH_CHECK(one || !context->saved_data["summed"].toBool(),
                "cross entropy: the gradient of the weight is in its sum already");
    const auto times = [&](const at::Tensor& x) {
      return one || !x.defined() ? x : x.mul(d_loss.to(x.scalar_type()));
    };
    return {times(saved[0]), times(saved[1]), at::Tensor(), at::Tensor(),
            at::Tensor(),    at::Tensor(),    at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor LinearCrossEntropy(const at::Tensor& x_nd, const at::Tensor& weight_vd,
                              const at::Tensor& targets_n, double scale, int64_t chunk_rows,
                              const at::Tensor& factors_n) {
  const bool enabled = at::GradMode::is_enabled();
  return LinearCrossEntropyFunction::apply(
      x_nd, weight_vd, targets_n, scale, chunk_rows, enabled && x_nd.requires_grad(),
      enabled && weight_vd.requires_grad(),
      Beside{enabled ? GradientSum(weight_vd) : at::Tensor(), factors_n});
}

}  // namespace gpuctl::trainer
