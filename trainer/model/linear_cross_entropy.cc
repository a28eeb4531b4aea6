// Legend: n rows, r rows of one chunk, d d_model, v vocabulary.

#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "trainer/cpu/kernels.h"
#include "trainer/linear/matmul.h"
#include "trainer/linear/threads.h"
#include "trainer/linear/widths.h"
#include "trainer/model/functions.h"

namespace gpuctl::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Adds scale * the chunk's loss to `loss`. Returns the gradient of that by the logits (undefined if
// it is not needed), in the memory of the logits.
at::Tensor ChunkLoss(at::Tensor logits_rv, const at::Tensor& target_r, const at::Tensor& factor_r,
                     double scale, bool need_gradient, at::Tensor& loss) {
  if (UsesCpuKernels(logits_rv)) {
    const int64_t rows = logits_rv.size(0), vocab = logits_rv.size(1), grain = RowGrain(vocab);
    std::array<double, kMostPieces> sums{};
    ForPieces(RangesOf(rows, grain), [&](int64_t piece) {
      const int64_t begin = RangeBegin(rows, grain, piece);
      sums[static_cast<size_t>(piece)] = cpu::CrossEntropy(
          RangeBegin(rows, grain, piece + 1) - begin, vocab, target_r.data_ptr<int64_t>() + begin,
          static_cast<float>(scale), need_gradient, logits_rv.data_ptr<float>() + begin * vocab,
          factor_r.defined() ? factor_r.data_ptr<float>() + begin : nullptr);
    });
    loss.add_(std::accumulate(sums.begin(), sums.end(), 0.0));
    return need_gradient ? logits_rv : at::Tensor();
  }
  const at::Tensor target_r1 = target_r.unsqueeze(1);
  const at::Tensor weight_r1 = target_r1.ge(0).to(loss.scalar_type()).mul_(scale);
  if (factor_r.defined()) weight_r1.mul_(factor_r.unsqueeze(1));
  const at::Tensor index_r1 = target_r1.clamp_min(0);
  at::Tensor log_p_rv = at::_log_softmax(Widen(logits_rv), 1, /*half_to_float=*/false);
  loss.sub_(log_p_rv.gather(1, index_r1).mul_(weight_r1).sum());
  if (!need_gradient) return at::Tensor();
  at::Tensor d_logits_rv = log_p_rv.exp_();
  d_logits_rv.scatter_add_(1, index_r1, at::ones_like(weight_r1).neg_()).mul_(weight_r1);
  return d_logits_rv.to(logits_rv.scalar_type());
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
    const int64_t most = std::min(chunk_rows, x_nd.size(0));
    const at::Tensor room_rv = at::empty({most, weight_vd.size(0)}, x_nd.options());
    for (int64_t first = 0; first < x_nd.size(0); first += chunk_rows) {
      const int64_t rows = std::min(chunk_rows, x_nd.size(0) - first);
      const at::Tensor x_rd = x_nd.narrow(0, first, rows);
      const at::Tensor logits_rv = room_rv.narrow(0, 0, rows);
      MatMulInto(x_rd, weight_vd.t(), /*add=*/false, logits_rv);
      const at::Tensor d_logits_rv = ChunkLoss(
          logits_rv, targets_n.narrow(0, first, rows),
          beside.factors_n.defined() ? beside.factors_n.narrow(0, first, rows) : at::Tensor(),
          scale, need_gradient, loss);
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
