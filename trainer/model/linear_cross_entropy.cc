// Legend: n rows, r rows of one chunk, d d_model, v vocabulary.

#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "trainer/model/functions.h"

namespace gpuctl::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The gradient is linear in the incoming one, so it is worked out while the chunk's logits are at
// hand, and only multiplied on the way back. That keeps [N, D] and [V, D] instead of [N, V].
struct LinearCrossEntropyFunction : torch::autograd::Function<LinearCrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_nd,
                            const at::Tensor& weight_vd, const at::Tensor& targets_n, double scale,
                            int64_t chunk_rows, bool need_gradient) {
    const bool narrow = x_nd.scalar_type() == at::kBFloat16 || x_nd.scalar_type() == at::kHalf;
    const at::ScalarType wide = narrow ? at::kFloat : x_nd.scalar_type();
    const at::TensorOptions wide_options = x_nd.options().dtype(wide);
    at::Tensor loss = at::zeros({}, wide_options);
    at::Tensor dx_nd = need_gradient ? at::empty_like(x_nd) : at::Tensor();
    at::Tensor dw_vd = need_gradient ? at::zeros_like(weight_vd, wide_options) : at::Tensor();
    for (int64_t first = 0; first < x_nd.size(0); first += chunk_rows) {
      const int64_t rows = std::min(chunk_rows, x_nd.size(0) - first);
      const at::Tensor x_rd = x_nd.narrow(0, first, rows);
      const at::Tensor target_r1 = targets_n.narrow(0, first, rows).unsqueeze(1);
      const at::Tensor weight_r1 = target_r1.ge(0).to(wide).mul_(scale);
      const at::Tensor index_r1 = target_r1.clamp_min(0);
      at::Tensor log_p_rv =
          at::_log_softmax(at::mm(x_rd, weight_vd.t()).to(wide), 1, /*half_to_float=*/false);
      loss.sub_(log_p_rv.gather(1, index_r1).mul_(weight_r1).sum());
      if (!need_gradient) continue;
      at::Tensor d_logits_rv = log_p_rv.exp_();
      d_logits_rv.scatter_add_(1, index_r1, at::ones_like(weight_r1).neg_()).mul_(weight_r1);
      const at::Tensor d_logits = d_logits_rv.to(x_nd.scalar_type());
      at::Tensor dx_rd = dx_nd.narrow(0, first, rows);
      at::mm_out(dx_rd, d_logits, weight_vd);
      if (narrow) {
        dw_vd.add_(at::mm(d_logits.t(), x_rd));
      } else {
        dw_vd.addmm_(d_logits.t(), x_rd);
      }
    }
    if (need_gradient) context->save_for_backward({dx_nd, dw_vd.to(weight_vd.scalar_type())});
    return loss;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& d_loss = gradients[0];
    return {saved[0].mul(d_loss.to(saved[0].scalar_type())),
            saved[1].mul(d_loss.to(saved[1].scalar_type())),
            at::Tensor(),
            at::Tensor(),
            at::Tensor(),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor LinearCrossEntropy(const at::Tensor& x_nd, const at::Tensor& weight_vd,
                              const at::Tensor& targets_n, double scale, int64_t chunk_rows) {
  const bool need_gradient =
      at::GradMode::is_enabled() && (x_nd.requires_grad() || weight_vd.requires_grad());
  return LinearCrossEntropyFunction::apply(x_nd, weight_vd, targets_n, scale, chunk_rows,
                                           need_gradient);
}

}  // namespace gpuctl::trainer
