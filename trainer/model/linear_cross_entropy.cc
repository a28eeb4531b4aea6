// Legend: n rows, r rows of one chunk, d d_model, v vocabulary.

#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "trainer/cpu/kernels.h"
#include "trainer/linear/matmul.h"
#include "trainer/linear/threads.h"
#include "trainer/linear/widths.h"
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

// Logits by columns [v, r]: oneDNN multiplies fastest when W keeps its rows. Adds the chunk's loss
// to `loss`. Returns, if it is needed, the gradient of that by the logits, as a view [r, v] of
// their memory.
at::Tensor ChunkOnCpu(const at::Tensor& x_rd, const at::Tensor& weight_vd, const Rows& of,
                      bool need_gradient, at::Tensor& loss) {
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
      MatMulInto(weight_vd.narrow(0, first, count), x_rd.t(), /*add=*/false,
                 logits_vr.narrow(0, first, count));
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
  loss.add_(cpu::SumLosses(rows, parts, {targets, at_target.data(), factors}, scale, largest.data(),
                           sums.data()));
  if (!need_gradient) return at::Tensor();
  ForRanges(vocab, kPartRows, [&](int64_t begin, int64_t end) {
    cpu::ScaleColumns(rows, end - begin, largest.data(), sums.data(), logits + begin * rows);
  });
  for (int64_t row = 0; row < rows; ++row) {
    if (targets[row] < 0) continue;
    logits[targets[row] * rows + row] -= factors == nullptr ? scale : scale * factors[row];
  }
  return logits_vr.t();
}

// The same with LibTorch's operators.
at::Tensor ChunkOnDevice(const at::Tensor& x_rd, const at::Tensor& weight_vd, const Rows& of,
                         bool need_gradient, at::Tensor& loss) {
  const at::Tensor logits_rv = RoomForLogits(x_rd.size(0), weight_vd.size(0), x_rd.options());
  MatMulInto(x_rd, weight_vd.t(), /*add=*/false, logits_rv);
  const at::Tensor target_r1 = of.target_r.unsqueeze(1);
  const at::Tensor weight_r1 = target_r1.ge(0).to(loss.scalar_type()).mul_(of.scale);
  if (of.factor_r.defined()) weight_r1.mul_(of.factor_r.unsqueeze(1));
  const at::Tensor index_r1 = target_r1.clamp_min(0);
  at::Tensor log_p_rv = at::_log_softmax(Widen(logits_rv), 1, /*half_to_float=*/false);
  const at::Tensor log_p_r1 = log_p_rv.gather(1, index_r1);
  loss.sub_(at::mul(log_p_r1, weight_r1).sum());
  if (!need_gradient) return at::Tensor();
  // p - 1 of the target in full width: it is tiny where the model is sure.
  const at::Tensor at_target_r1 = at::expm1(log_p_r1).mul_(weight_r1);
  at::Tensor d_logits_rv = logits_rv;
  at::mul_out(d_logits_rv, log_p_rv.exp_(), weight_r1);
  return d_logits_rv.scatter_(1, index_r1, at_target_r1.to(d_logits_rv.scalar_type()));
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
    const bool need_gradient = need_dx || need_dw;
    const at::TensorOptions wide =
        x_nd.options().dtype(IsHalfWidth(x_nd) ? at::kFloat : x_nd.scalar_type());
    at::Tensor loss = at::zeros({}, wide);
    at::Tensor dx_nd = need_dx ? at::empty_like(x_nd) : at::Tensor();
    at::Tensor dw_vd = sum_vd;
    if (need_dw && !sum_vd.defined()) dw_vd = at::zeros_like(weight_vd, wide);
    const auto chunk = UsesCpuKernels(x_nd) ? ChunkOnCpu : ChunkOnDevice;
    for (int64_t first = 0; first < x_nd.size(0); first += chunk_rows) {
      const int64_t rows = std::min(chunk_rows, x_nd.size(0) - first);
      const at::Tensor x_rd = x_nd.narrow(0, first, rows);
      const Rows of = {
          targets_n.narrow(0, first, rows),
          beside.factors_n.defined() ? beside.factors_n.narrow(0, first, rows) : at::Tensor(),
          scale};
      const at::Tensor d_logits_rv = chunk(x_rd, weight_vd, of, need_gradient, loss);
      if (need_dx) MatMulInto(d_logits_rv, weight_vd, /*add=*/false, dx_nd.narrow(0, first, rows));
      if (!need_dw) continue;
      if (IsHalfWidth(x_nd)) {
        dw_vd.add_(MatMul(d_logits_rv.t(), x_rd));
      } else {
        MatMulInto(d_logits_rv.t(), x_rd, /*add=*/true, dw_vd);
      }
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
