// Causal attention with rotary positions.
//
// Legend: b windows, t queries, s keys, k kv heads, g query heads of one kv head, h = k g heads,
// e head_dim, c columns of the fused projection, m = g t rows of one batched product, z = b k.
// The G query heads that share a key head are rows of one product, so K and V need no repetition.

#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "trainer/model/cpu_kernels.h"
#include "trainer/model/dispatch.h"
#include "trainer/model/functions.h"
#include "trainer/model/heads.h"
#include "trainer/model/matmul.h"
#include "trainer/model/widths.h"

namespace gpuctl::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Queries per block. Smaller blocks save more of the masked half, larger ones multiply faster.
constexpr int64_t kBlock = 128;

// A block: queries [first, first + rows) with the keys [0, first + rows).
struct Block {
  int64_t first;
  int64_t rows;
  int64_t keys() const { return first + rows; }
};

std::vector<Block> BlocksOf(int64_t tokens) {
  std::vector<Block> blocks;
  for (int64_t first = 0; first < tokens; first += kBlock) {
    blocks.push_back({first, std::min(kBlock, tokens - first)});
  }
  return blocks;
}

// Returns that block of [B, K, G, T, E] as dense [Z, M, E].
at::Tensor RowsOf(const at::Tensor& x_bkgte, const Block& block) {
  const at::Tensor rows = x_bkgte.narrow(3, block.first, block.rows);
  return rows.reshape({rows.size(0) * rows.size(1), rows.size(2) * block.rows, rows.size(4)});
}

// Writes [Z, M, E] back into the block of [B, K, G, T, E].
void PutRows(const at::Tensor& rows_zme, const Block& block, const at::Tensor& x_bkgte) {
  const at::Tensor target = x_bkgte.narrow(3, block.first, block.rows);
  target.copy_(rows_zme.view(target.sizes()));
}

// Returns [N, H E] as a view [B, K, G, T, E].
at::Tensor GroupsView(const at::Tensor& x_nc, const AttentionShape& s) {
  return x_nc.view({s.windows, s.tokens, s.kv_heads, s.heads / s.kv_heads, s.head_dim})
      .permute({0, 2, 3, 1, 4});
}

// Returns the softmax of the visible part of each row; overwrites scores [Z, M, S].
at::Tensor Softmax(at::Tensor scores_zms, const Block& block, int64_t group) {
  if (UsesCpuKernels(scores_zms)) {
    cpu::CausalSoftmax(scores_zms.size(0) * group, block.rows, block.keys(), block.first + 1,
                       scores_zms.data_ptr<float>());
    return scores_zms;
  }
  const at::Tensor mask_tt =
      at::triu(at::full({block.rows, block.rows}, -std::numeric_limits<double>::infinity(),
                        scores_zms.options()),
               1);
  scores_zms.view({-1, group, block.rows, block.keys()})
      .narrow(3, block.first, block.rows)
      .add_(mask_tt);
  return at::_softmax(scores_zms, -1, /*half_to_float=*/false);
}

at::Tensor SoftmaxBackward(at::Tensor d_p_zms, const at::Tensor& p_zms, const Block& block,
                           int64_t group) {
  if (UsesCpuKernels(p_zms)) {
    cpu::CausalSoftmaxBackward(p_zms.size(0) * group, block.rows, block.keys(), block.first + 1,
                               p_zms.data_ptr<float>(), d_p_zms.data_ptr<float>());
    return d_p_zms;
  }
  return at::_softmax_backward_data(d_p_zms, p_zms, -1, p_zms.scalar_type());
}

// Attention of q [B, H, T, E] (scaled already), k and v [B, K, T, E] as [N, H E], by blocks of
// queries.
struct BlockAttention : torch::autograd::Function<BlockAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q_bhte,
                            const at::Tensor& k_bkse, const at::Tensor& v_bkse, AttentionShape s) {
    const int64_t group = s.heads / s.kv_heads;
    const at::Tensor q_bkgte = q_bhte.view({s.windows, s.kv_heads, group, s.tokens, s.head_dim});
    const at::Tensor k_zse = k_bkse.view({-1, s.tokens, s.head_dim});
    const at::Tensor v_zse = v_bkse.view({-1, s.tokens, s.head_dim});
    const at::Tensor out_nc =
        at::empty({s.windows * s.tokens, s.heads * s.head_dim}, q_bhte.options());
    variable_list saved = {q_bkgte, k_zse, v_zse};
    for (const Block& block : BlocksOf(s.tokens)) {
      const at::Tensor p_zms = Softmax(
          BatchedMatMul(RowsOf(q_bkgte, block), k_zse.narrow(1, 0, block.keys()).transpose(1, 2)),
          block, group);
      PutRows(BatchedMatMul(p_zms, v_zse.narrow(1, 0, block.keys())), block, GroupsView(out_nc, s));
      saved.push_back(p_zms);
    }
    context->save_for_backward(saved);
    return out_nc;
  }

  // With S the scores, P = softmax(S), O = P V:
  //   dV = P^T dO,  dP = dO V^T,  dS = P (dP - rowsum(dP P)),  dQ = dS K,  dK = dS^T Q.
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &q_bkgte = saved[0], &k_zse = saved[1], &v_zse = saved[2];
    const AttentionShape s = {q_bkgte.size(0), q_bkgte.size(3), q_bkgte.size(1) * q_bkgte.size(2),
                              q_bkgte.size(1), q_bkgte.size(4)};
    const int64_t group = s.heads / s.kv_heads;
    const at::Tensor d_out_bkgte = GroupsView(gradients[0].contiguous(), s);
    const at::Tensor d_q_bkgte = at::empty_like(q_bkgte);
    const at::Tensor d_k_zse = at::zeros_like(k_zse);
    const at::Tensor d_v_zse = at::zeros_like(v_zse);
    size_t next = 3;
    for (const Block& block : BlocksOf(s.tokens)) {
      const at::Tensor& p_zms = saved[next++];
      const at::Tensor d_out_zme = RowsOf(d_out_bkgte, block);
      BatchedMatMulAdd(p_zms.transpose(1, 2), d_out_zme, d_v_zse.narrow(1, 0, block.keys()));
      const at::Tensor d_s_zms = SoftmaxBackward(
          BatchedMatMul(d_out_zme, v_zse.narrow(1, 0, block.keys()).transpose(1, 2)), p_zms, block,
          group);
      d_k_zse.narrow(1, 0, block.keys()).baddbmm_(d_s_zms.transpose(1, 2), RowsOf(q_bkgte, block));
      PutRows(BatchedMatMul(d_s_zms, k_zse.narrow(1, 0, block.keys())), block, d_q_bkgte);
    }
    return {d_q_bkgte.view({s.windows, s.heads, s.tokens, s.head_dim}),
            d_k_zse.view({s.windows, s.kv_heads, s.tokens, s.head_dim}),
            d_v_zse.view({s.windows, s.kv_heads, s.tokens, s.head_dim}), at::Tensor()};
  }
};

}  // namespace

at::Tensor CausalAttention(const at::Tensor& qkv_nc, const RotaryTable& rotary,
                           const AttentionShape& shape) {
  if (!qkv_nc.is_cpu() && HasFusedAttention()) {
    const Heads heads = SplitAndRotate(qkv_nc, rotary, shape, 1.0);
    return FusedCausalAttention(heads.q_bhte, heads.k_bkse, heads.v_bkse)
        .transpose(1, 2)
        .reshape({shape.windows * shape.tokens, shape.heads * shape.head_dim});
  }
  const double q_scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
  const Heads heads = SplitAndRotate(qkv_nc, rotary, shape, q_scale);
  return BlockAttention::apply(heads.q_bhte, heads.k_bkse, heads.v_bkse, shape);
}

}  // namespace gpuctl::trainer
