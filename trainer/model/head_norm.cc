// Legend: n rows, c columns of the fused projection, p heads of one part, e head_dim.

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/cpu/kernels.h"
#include "trainer/linear/threads.h"
#include "trainer/linear/widths.h"
#include "trainer/model/functions.h"

namespace gpuctl::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The query heads or the key heads of the fused projection.
struct NormedPart {
  int64_t first;  // head
  int64_t heads;
};

at::Tensor ViewOf(const at::Tensor& x_nc, const NormedPart& part, int64_t head_dim) {
  return x_nc.view({x_nc.size(0), -1, head_dim}).narrow(1, part.first, part.heads);
}

// Norms the heads of one part; `scale_np` gets 1 / sqrt(mean of squares + eps).
void Norm(const at::Tensor& qkv_nc, const NormedPart& part, const at::Tensor& weight_e, double eps,
          const at::Tensor& out_nc, at::Tensor scale_np) {
  const int64_t head_dim = weight_e.size(0);
  if (UsesCpuKernels(qkv_nc)) {
    const int64_t columns = qkv_nc.size(1);
    ForRanges(qkv_nc.size(0), RowGrain(part.heads * head_dim), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = row * columns + part.first * head_dim;
        cpu::RmsNorm(part.heads, head_dim, static_cast<float>(eps), qkv_nc.data_ptr<float>() + at,
                     weight_e.data_ptr<float>(), out_nc.data_ptr<float>() + at,
                     scale_np.data_ptr<float>() + row * part.heads);
      }
    });
    return;
  }
  const at::Tensor wide_npe = Widen(ViewOf(qkv_nc, part, head_dim));
  scale_np.copy_(at::mul(wide_npe, wide_npe).mean({-1}).add_(eps).rsqrt_());
  ViewOf(out_nc, part, head_dim)
      .copy_(at::mul(wide_npe, scale_np.unsqueeze(2)).mul_(Widen(weight_e)));
}

// Writes the gradient of the part's heads, and returns that of its weight, in the weight's dtype.
at::Tensor NormBackward(const at::Tensor& qkv_nc, const NormedPart& part,
                        const at::Tensor& weight_e, const at::Tensor& scale_np,
                        const at::Tensor& dy_nc, const at::Tensor& dx_nc) {
  const int64_t head_dim = weight_e.size(0);
  if (UsesCpuKernels(qkv_nc)) {
    const int64_t columns = qkv_nc.size(1);
    const int64_t rows = qkv_nc.size(0), grain = RowGrain(part.heads * head_dim);
    // Each piece has its own sum, and room for the gradient of one row.
    const at::Tensor sums_p2e = at::zeros({RangesOf(rows, grain), 2, head_dim}, weight_e.options());
    ForPieces(sums_p2e.size(0), [&](int64_t piece) {
      float* sum = sums_p2e.data_ptr<float>() + piece * 2 * head_dim;
      float* more = sum + head_dim;
      const int64_t end = RangeBegin(rows, grain, piece + 1);
      for (int64_t row = RangeBegin(rows, grain, piece); row < end; ++row) {
        const int64_t at = row * columns + part.first * head_dim;
        cpu::RmsNormBackward(part.heads, head_dim, qkv_nc.data_ptr<float>() + at,
                             weight_e.data_ptr<float>(),
                             scale_np.data_ptr<float>() + row * part.heads,
                             dy_nc.data_ptr<float>() + at, dx_nc.data_ptr<float>() + at, more);
        for (int64_t e = 0; e < head_dim; ++e) sum[e] += more[e];
      }
    });
    return sums_p2e.select(1, 0).sum(at::IntArrayRef({0}));
  }
  const at::Tensor scale_np1 = scale_np.unsqueeze(2);
  const at::Tensor unit_npe = at::mul(Widen(ViewOf(qkv_nc, part, head_dim)), scale_np1);
  const at::Tensor dy_npe = Widen(ViewOf(dy_nc, part, head_dim));
  const at::Tensor d_unit_npe = at::mul(dy_npe, Widen(weight_e));
  const at::Tensor mean_np1 = at::mul(d_unit_npe, unit_npe).mean({-1}, /*keepdim=*/true);
  ViewOf(dx_nc, part, head_dim).copy_(d_unit_npe.addcmul(unit_npe, mean_np1, -1).mul_(scale_np1));
  return at::mul(dy_npe, unit_npe).sum(at::IntArrayRef({0, 1})).to(weight_e.scalar_type());
}

struct HeadNormFunction : torch::autograd::Function<HeadNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv_nc,
                            const at::Tensor& q_stored_e, const at::Tensor& k_stored_e,
                            AttentionShape s, double eps, bool offset) {
    const at::Tensor q_weight_e = offset ? Widen(q_stored_e).add(1) : q_stored_e;
    const at::Tensor k_weight_e = offset ? Widen(k_stored_e).add(1) : k_stored_e;
    const at::TensorOptions wide = qkv_nc.options().dtype(Widen(q_weight_e).scalar_type());
    const at::Tensor q_scale_np = at::empty({qkv_nc.size(0), s.heads}, wide);
    const at::Tensor k_scale_np = at::empty({qkv_nc.size(0), s.kv_heads}, wide);
    const at::Tensor out_nc = at::empty_like(qkv_nc);
    Norm(qkv_nc, {0, s.heads}, q_weight_e, eps, out_nc, q_scale_np);
    Norm(qkv_nc, {s.heads, s.kv_heads}, k_weight_e, eps, out_nc, k_scale_np);
    const NormedPart values = {s.heads + s.kv_heads, s.kv_heads};
    ViewOf(out_nc, values, s.head_dim).copy_(ViewOf(qkv_nc, values, s.head_dim));
    context->save_for_backward({qkv_nc, q_weight_e, k_weight_e, q_scale_np, k_scale_np});
    context->saved_data["heads"] = s.heads;
    context->saved_data["kv_heads"] = s.kv_heads;
    return out_nc;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& qkv_nc = saved[0];
    const int64_t heads = context->saved_data["heads"].toInt();
    const int64_t kv_heads = context->saved_data["kv_heads"].toInt();
    const int64_t head_dim = saved[1].size(0);
    const at::Tensor dy_nc = gradients[0].contiguous();
    const at::Tensor dx_nc = at::empty_like(qkv_nc);
    const at::Tensor dq_e = NormBackward(qkv_nc, {0, heads}, saved[1], saved[3], dy_nc, dx_nc);
    const at::Tensor dk_e =
        NormBackward(qkv_nc, {heads, kv_heads}, saved[2], saved[4], dy_nc, dx_nc);
    const NormedPart values = {heads + kv_heads, kv_heads};
    ViewOf(dx_nc, values, head_dim).copy_(ViewOf(dy_nc, values, head_dim));
    return {dx_nc, dq_e, dk_e, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor HeadNorm(const at::Tensor& qkv_nc, const at::Tensor& q_weight_e,
                    const at::Tensor& k_weight_e, const AttentionShape& shape, double eps,
                    bool offset) {
  return HeadNormFunction::apply(qkv_nc, q_weight_e, k_weight_e, shape, eps, offset);
}

}  // namespace gpuctl::trainer
