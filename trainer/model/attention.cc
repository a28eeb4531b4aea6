// Causal attention with rotary positions.
//
// Legend: b windows, t queries, s keys, k kv heads, g query heads of one kv head, h = k g heads,
// e head_dim, c columns of the fused projection, m = g t rows of one batched product, z = b k.
// The G query heads that share a key head are rows of one product, so K and V are never repeated.

#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "trainer/model/dispatch.h"
#include "trainer/model/functions.h"

namespace gpuctl::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Queries a block. Smaller saves more of the masked half, larger multiplies better.
constexpr int64_t kBlock = 128;

// out = x turned by the angles (or back, if `inverse`); all [.., T, E] with T before E.
void Rotate(const at::Tensor& x, const at::Tensor& cos_te, const at::Tensor& sin_te, bool inverse,
            at::Tensor out) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor first = x.narrow(-1, 0, half);
  const at::Tensor second = x.narrow(-1, half, half);
  at::Tensor out_first = out.narrow(-1, 0, half);
  at::Tensor out_second = out.narrow(-1, half, half);
  const double sign = inverse ? -1.0 : 1.0;
  at::mul_out(out_first, first, cos_te).addcmul_(second, sin_te, -sign);
  at::mul_out(out_second, second, cos_te).addcmul_(first, sin_te, sign);
}

// The columns of [N, (H + 2K) E] that belong to q, k or v, as a view [B, heads, T, E].
at::Tensor HeadsView(const at::Tensor& qkv_nc, const AttentionShape& s, int64_t first,
                     int64_t heads) {
  return qkv_nc.view({s.windows, s.tokens, s.heads + 2 * s.kv_heads, s.head_dim})
      .narrow(2, first, heads)
      .transpose(1, 2);
}

AttentionShape ReadShape(AutogradContext* context) {
  const auto value = [&](const char* key) { return context->saved_data[key].toInt(); };
  return {value("windows"), value("tokens"), value("heads"), value("kv_heads"), value("head_dim")};
}

void SaveShape(AutogradContext* context, const AttentionShape& s) {
  context->saved_data["windows"] = s.windows;
  context->saved_data["tokens"] = s.tokens;
  context->saved_data["heads"] = s.heads;
  context->saved_data["kv_heads"] = s.kv_heads;
  context->saved_data["head_dim"] = s.head_dim;
}

// Fused projection -> q [B, H, T, E], k and v [B, K, T, E]; q and k turned.
struct SplitAndRotate : torch::autograd::Function<SplitAndRotate> {
  static variable_list forward(AutogradContext* context, const at::Tensor& qkv_nc,
                               const at::Tensor& cos_te, const at::Tensor& sin_te,
                               AttentionShape s) {
    context->save_for_backward({cos_te, sin_te});
    SaveShape(context, s);
    const at::Tensor q_bhte =
        at::empty({s.windows, s.heads, s.tokens, s.head_dim}, qkv_nc.options());
    const at::Tensor k_bkse =
        at::empty({s.windows, s.kv_heads, s.tokens, s.head_dim}, qkv_nc.options());
    Rotate(HeadsView(qkv_nc, s, 0, s.heads), cos_te, sin_te, false, q_bhte);
    Rotate(HeadsView(qkv_nc, s, s.heads, s.kv_heads), cos_te, sin_te, false, k_bkse);
    const at::Tensor v_bkse = HeadsView(qkv_nc, s, s.heads + s.kv_heads, s.kv_heads).contiguous();
    return {q_bhte, k_bkse, v_bkse};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const AttentionShape s = ReadShape(context);
    const at::Tensor d_qkv_nc = at::empty(
        {s.windows * s.tokens, (s.heads + 2 * s.kv_heads) * s.head_dim}, gradients[0].options());
    Rotate(gradients[0], saved[0], saved[1], true, HeadsView(d_qkv_nc, s, 0, s.heads));
    Rotate(gradients[1], saved[0], saved[1], true, HeadsView(d_qkv_nc, s, s.heads, s.kv_heads));
    HeadsView(d_qkv_nc, s, s.heads + s.kv_heads, s.kv_heads).copy_(gradients[2]);
    return {d_qkv_nc, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// -inf above the diagonal of one block of queries against its own keys.
at::Tensor CausalMask(int64_t size, const at::TensorOptions& options) {
  return at::triu(at::full({size, size}, -std::numeric_limits<double>::infinity(), options), 1);
}

// Block `[first, first + rows)` of a [B, K, G, T, E] tensor as [Z, M, E].
at::Tensor BlockOf(const at::Tensor& x_bkgte, int64_t first, int64_t rows) {
  const at::Tensor block = x_bkgte.narrow(3, first, rows);
  return block.reshape({block.size(0) * block.size(1), block.size(2) * rows, block.size(4)});
}

// q [B, H, T, E], k and v [B, K, T, E] -> [N, H E], block by block of queries.
struct BlockAttention : torch::autograd::Function<BlockAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q_bhte,
                            const at::Tensor& k_bkse, const at::Tensor& v_bkse, AttentionShape s) {
    SaveShape(context, s);
    const int64_t group = s.heads / s.kv_heads;
    const double scale = 1.0 / std::sqrt(static_cast<double>(s.head_dim));
    const at::Tensor q_bkgte =
        at::mul(q_bhte, scale).view({s.windows, s.kv_heads, group, s.tokens, s.head_dim});
    const at::Tensor k_zse = k_bkse.view({-1, s.tokens, s.head_dim});
    const at::Tensor v_zse = v_bkse.view({-1, s.tokens, s.head_dim});
    const at::Tensor out_nc =
        at::empty({s.windows * s.tokens, s.heads * s.head_dim}, q_bhte.options());
    const at::Tensor out_bkgte =
        out_nc.view({s.windows, s.tokens, s.kv_heads, group, s.head_dim}).permute({0, 2, 3, 1, 4});
    const at::Tensor mask_tt = CausalMask(std::min(kBlock, s.tokens), q_bhte.options());
    variable_list saved = {q_bkgte, k_zse, v_zse};
    for (int64_t first = 0; first < s.tokens; first += kBlock) {
      const int64_t rows = std::min(kBlock, s.tokens - first);
      const int64_t keys = first + rows;
      const at::Tensor scores_zms =
          at::bmm(BlockOf(q_bkgte, first, rows), k_zse.narrow(1, 0, keys).transpose(1, 2));
      scores_zms.view({-1, group, rows, keys})
          .narrow(3, first, rows)
          .add_(mask_tt.narrow(0, 0, rows).narrow(1, 0, rows));
      const at::Tensor p_zms = at::_softmax(scores_zms, -1, /*half_to_float=*/false);
      out_bkgte.narrow(3, first, rows)
          .copy_(at::bmm(p_zms, v_zse.narrow(1, 0, keys))
                     .view({s.windows, s.kv_heads, group, rows, s.head_dim}));
      saved.push_back(p_zms);
    }
    context->save_for_backward(saved);
    return out_nc;
  }

  // With S the scores, P = softmax(S), O = P V:  dV = P^T dO, dP = dO V^T, dS = P (dP - rowsum),
  // dQ = dS K / sqrt(E), dK = dS^T Q (whose Q carries the root already).
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const AttentionShape s = ReadShape(context);
    const int64_t group = s.heads / s.kv_heads;
    const double scale = 1.0 / std::sqrt(static_cast<double>(s.head_dim));
    const at::Tensor &q_bkgte = saved[0], &k_zse = saved[1], &v_zse = saved[2];
    const at::Tensor d_out_bkgte = gradients[0]
                                       .contiguous()
                                       .view({s.windows, s.tokens, s.kv_heads, group, s.head_dim})
                                       .permute({0, 2, 3, 1, 4});
    at::Tensor d_q_bkgte = at::empty_like(q_bkgte);
    at::Tensor d_k_zse = at::zeros_like(k_zse);
    at::Tensor d_v_zse = at::zeros_like(v_zse);
    size_t block = 3;
    for (int64_t first = 0; first < s.tokens; first += kBlock) {
      const int64_t rows = std::min(kBlock, s.tokens - first);
      const int64_t keys = first + rows;
      const at::Tensor& p_zms = saved[block++];
      const at::Tensor d_out_zme = BlockOf(d_out_bkgte, first, rows);
      d_v_zse.narrow(1, 0, keys).baddbmm_(p_zms.transpose(1, 2), d_out_zme);
      const at::Tensor d_p_zms = at::bmm(d_out_zme, v_zse.narrow(1, 0, keys).transpose(1, 2));
      const at::Tensor d_s_zms =
          at::_softmax_backward_data(d_p_zms, p_zms, -1, p_zms.scalar_type());
      d_k_zse.narrow(1, 0, keys).baddbmm_(d_s_zms.transpose(1, 2), BlockOf(q_bkgte, first, rows));
      d_q_bkgte.narrow(3, first, rows)
          .copy_(at::bmm(d_s_zms, k_zse.narrow(1, 0, keys))
                     .mul_(scale)
                     .view({s.windows, s.kv_heads, group, rows, s.head_dim}));
    }
    return {d_q_bkgte.view({s.windows, s.heads, s.tokens, s.head_dim}),
            d_k_zse.view({s.windows, s.kv_heads, s.tokens, s.head_dim}),
            d_v_zse.view({s.windows, s.kv_heads, s.tokens, s.head_dim}), at::Tensor()};
  }
};

}  // namespace

RotaryTable MakeRotaryTable(int64_t context, int64_t head_dim, double theta,
                            const at::TensorOptions& options) {
  const auto in_double = at::TensorOptions(at::kDouble);
  const at::Tensor frequency_e = at::pow(
      theta, at::arange(0, head_dim, 2, in_double).mul_(-1.0 / static_cast<double>(head_dim)));
  const at::Tensor angle_te = at::outer(at::arange(context, in_double), frequency_e);
  return {angle_te.cos().to(options), angle_te.sin().to(options)};
}

at::Tensor CausalAttention(const at::Tensor& qkv_nc, const RotaryTable& rotary,
                           const AttentionShape& shape) {
  const variable_list qkv = SplitAndRotate::apply(qkv_nc, rotary.cos_te.narrow(0, 0, shape.tokens),
                                                  rotary.sin_te.narrow(0, 0, shape.tokens), shape);
  if (!qkv_nc.is_cpu() && HasFusedAttention()) {
    const at::Tensor out_bhte = FusedCausalAttention(qkv[0], qkv[1], qkv[2]);
    return out_bhte.transpose(1, 2).reshape(
        {shape.windows * shape.tokens, shape.heads * shape.head_dim});
  }
  return BlockAttention::apply(qkv[0], qkv[1], qkv[2], shape);
}

}  // namespace gpuctl::trainer
