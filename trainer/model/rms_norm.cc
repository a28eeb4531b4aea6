#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/cpu/kernels.h"
#include "trainer/linear/threads.h"
#include "trainer/linear/widths.h"
#include "trainer/model/dispatch.h"
#include "trainer/model/functions.h"

namespace gpuctl::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_nd,
                            const at::Tensor& stored_d, double eps, bool offset) {
    const at::Tensor weight_d = offset ? Widen(stored_d).add(1) : stored_d;
    if (UsesCpuKernels(x_nd)) {
      const at::Tensor out_nd = at::empty_like(x_nd);
      const at::Tensor scale_n1 = at::empty({x_nd.size(0), 1}, x_nd.options());
      const int64_t width = x_nd.size(1);
      ForRanges(x_nd.size(0), RowGrain(width), [&](int64_t begin, int64_t end) {
        cpu::RmsNorm(end - begin, width, static_cast<float>(eps),
                     x_nd.data_ptr<float>() + begin * width, weight_d.data_ptr<float>(),
                     out_nd.data_ptr<float>() + begin * width, scale_n1.data_ptr<float>() + begin);
      });
      context->save_for_backward({x_nd, weight_d, scale_n1});
      return out_nd;
    }
    if (HasFusedRmsNorm(x_nd)) {
      RmsNormed normed = FusedRmsNorm(x_nd.contiguous(), weight_d.to(x_nd.scalar_type()), eps);
      context->save_for_backward({x_nd, weight_d, normed.scale_n1});
      return normed.out_nd;
    }
    const at::Tensor wide_nd = Widen(x_nd);
    const at::Tensor scale_n1 =
        at::mul(wide_nd, wide_nd).mean({-1}, /*keepdim=*/true).add_(eps).rsqrt_();
    context->save_for_backward({x_nd, weight_d, scale_n1});
    return at::mul(wide_nd, scale_n1).mul_(Widen(weight_d)).to(x_nd.scalar_type());
  }

  // With u = x s and g = dy w:  dx = s (g - u mean(g u)),  dw = sum over rows of dy u.
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    if (UsesCpuKernels(saved[0])) return BackwardOnCpu(saved, gradients[0].contiguous());
    if (HasFusedRmsNorm(saved[0])) {
      const RmsNormGradients found =
          FusedRmsNormBackward(gradients[0].contiguous(), saved[0].contiguous(), saved[2],
                               saved[1].to(saved[0].scalar_type()));
      return {found.dx_nd, found.dw_d.to(saved[1].scalar_type()), at::Tensor(), at::Tensor()};
    }
    const at::Tensor x_nd = Widen(saved[0]);
    const at::Tensor& scale_n1 = saved[2];
    const at::Tensor dy_nd = Widen(gradients[0]);
    const at::Tensor unit_nd = at::mul(x_nd, scale_n1);
    at::Tensor product_nd = at::mul(dy_nd, unit_nd);
    const at::Tensor dw_d = product_nd.sum({0});
    at::Tensor dx_nd = at::mul(dy_nd, Widen(saved[1]));
    at::mul_out(product_nd, dx_nd, unit_nd);
    dx_nd.addcmul_(unit_nd, product_nd.mean({-1}, /*keepdim=*/true), -1).mul_(scale_n1);
    return {dx_nd.to(saved[0].scalar_type()), dw_d.to(saved[1].scalar_type()), at::Tensor(),
            at::Tensor()};
  }

  static variable_list BackwardOnCpu(const variable_list& saved, const at::Tensor& dy_nd) {
    const at::Tensor dx_nd = at::empty_like(saved[0]);
    const int64_t rows = dx_nd.size(0), width = dx_nd.size(1), grain = RowGrain(width);
    // Each piece has its own sum.
    const at::Tensor dw_pd = at::empty({RangesOf(rows, grain), width}, dx_nd.options());
    ForPieces(dw_pd.size(0), [&](int64_t piece) {
      const int64_t begin = RangeBegin(rows, grain, piece);
      const int64_t end = RangeBegin(rows, grain, piece + 1);
      cpu::RmsNormBackward(end - begin, width, saved[0].data_ptr<float>() + begin * width,
                           saved[1].data_ptr<float>(), saved[2].data_ptr<float>() + begin,
                           dy_nd.data_ptr<float>() + begin * width,
                           dx_nd.data_ptr<float>() + begin * width,
                           dw_pd.data_ptr<float>() + piece * width);
    });
    return {dx_nd, dw_pd.sum(at::IntArrayRef({0})), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor RmsNorm(const at::Tensor& x_nd, const at::Tensor& weight_d, double eps, bool offset) {
  return RmsNormFunction::apply(x_nd, weight_d, eps, offset);
}

}  // namespace gpuctl::trainer
