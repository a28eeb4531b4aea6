// Causal attention with rotary positions.
//
// Legend: b windows, t queries, s keys, k kv heads, g query heads of one kv head, h = k g heads,
// e head_dim, c columns of the fused projection, m = g t rows of one batched product, z = b k.
// The G query heads that share a key head are rows of one product, so K and V need no repetition.

#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "trainer/cpu/kernels.h"
#include "trainer/linear/matmul.h"
#include "trainer/linear/threads.h"
#include "trainer/linear/widths.h"
#include "trainer/model/dispatch.h"
#include "trainer/model/functions.h"
#include "trainer/model/heads.h"

namespace gpuctl::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Queries per block. Smaller blocks save more of the masked half, larger ones multiply faster.
constexpr int64_t kBlock = 128;

// A block: queries [first, first + rows) of those at hand, with the keys [low, high).
struct Block {
  int64_t first;
  int64_t rows;
  int64_t low;
  int64_t high;
  int64_t window;        // keys that each query sees at most
  at::Tensor starts_br;  // [B, rows]: no query sees a key before that; or undefined
  int64_t keys() const { return high - low; }
  // Keys of the block up to the one of its first query.
  int64_t visible() const { return keys() - rows + 1; }
};

// Documents do not overlap, so the first query of a block sees its oldest key.
int64_t OldestKey(const at::Tensor& starts_bt, int64_t first) {
  return starts_bt.defined() ? starts_bt.select(1, first).min().item<int64_t>() : 0;
}

std::vector<Block> BlocksOf(const AttentionShape& s) {
  std::vector<Block> blocks;
  const int64_t window = s.window > 0 ? s.window : std::numeric_limits<int64_t>::max();
  for (int64_t first = 0; first < s.tokens; first += kBlock) {
    const int64_t rows = std::min(kBlock, s.tokens - first);
    const int64_t position = s.past + first;
    const int64_t oldest = OldestKey(s.starts_bt, first);
    blocks.push_back({first, rows, std::max(oldest, position + 1 - window), position + rows, window,
                      s.starts_bt.defined() ? s.starts_bt.narrow(1, first, rows) : at::Tensor()});
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

// Returns 0 for the keys that each query of the block sees, else minus infinity, as [M / G, S] or
// [B, 1, M / G, S].
at::Tensor MaskOf(const Block& block, const at::TensorOptions& options) {
  constexpr double kHidden = -std::numeric_limits<double>::infinity();
  const at::Tensor hidden = at::full({block.rows, block.keys()}, kHidden, options);
  at::Tensor mask = at::triu(hidden, block.visible());
  if (block.window < block.keys()) {
    mask.add_(at::tril(hidden, block.visible() - 1 - block.window));
  }
  if (!block.starts_br.defined()) return mask;
  const at::Tensor key_s = at::arange(block.low, block.high, block.starts_br.options());
  const at::Tensor before_br1s = at::lt(key_s, block.starts_br.unsqueeze(-1)).unsqueeze(1);
  return mask.masked_fill(before_br1s, kHidden);
}

// The same for the kernels, where `matrices` are those of all windows.
cpu::VisibleKeys VisibleOf(const Block& block, int64_t matrices) {
  cpu::VisibleKeys of = {block.keys(), block.visible(), block.window};
  if (!block.starts_br.defined()) return of;
  of.starts = block.starts_br.data_ptr<int64_t>();
  of.starts_stride = block.starts_br.stride(0);
  of.window_matrices = matrices / block.starts_br.size(0);
  of.low = block.low;
  return of;
}

// Returns the softmax of the visible part of each row; overwrites scores [Z, M, S].
at::Tensor Softmax(at::Tensor scores_zms, const Block& block, int64_t group) {
  if (UsesCpuKernels(scores_zms)) {
    const int64_t matrices = scores_zms.size(0) * group, size = block.rows * block.keys();
    const cpu::VisibleKeys visible = VisibleOf(block, matrices);
    ForRanges(matrices, RowGrain(size), [&](int64_t begin, int64_t end) {
      cpu::CausalSoftmax(begin, end, block.rows, visible, scores_zms.data_ptr<float>());
    });
    return scores_zms;
  }
  const int64_t windows = block.starts_br.defined() ? block.starts_br.size(0) : 1;
  scores_zms.view({windows, -1, block.rows, block.keys()})
      .add_(MaskOf(block, scores_zms.options()));
  return at::_softmax(scores_zms, -1, /*half_to_float=*/false);
}

at::Tensor SoftmaxBackward(at::Tensor d_p_zms, const at::Tensor& p_zms, const Block& block,
                           int64_t group) {
  if (UsesCpuKernels(p_zms)) {
    const int64_t matrices = p_zms.size(0) * group, size = block.rows * block.keys();
    const cpu::VisibleKeys visible = VisibleOf(block, matrices);
    ForRanges(matrices, RowGrain(size), [&](int64_t begin, int64_t end) {
      cpu::CausalSoftmaxBackward(begin, end, block.rows, visible, p_zms.data_ptr<float>(),
                                 d_p_zms.data_ptr<float>());
    });
    return d_p_zms;
  }
  return at::_softmax_backward_data(d_p_zms, p_zms, -1, p_zms.scalar_type());
}

// Returns the keys or values of the block, of all [Z, S, E].
at::Tensor KeysOf(const at::Tensor& x_zse, const Block& block) {
  return x_zse.narrow(1, block.low, block.keys());
}

// Computes attention of q (scaled already) by blocks of queries as [N, H E]. `weights` (may be
// null) gets the softmax of each block.
at::Tensor AttendByBlocks(const at::Tensor& q_bkgte, const at::Tensor& k_zse,
                          const at::Tensor& v_zse, const AttentionShape& s,
                          variable_list* weights) {
  const at::Tensor out_nc =
      at::empty({s.windows * s.tokens, s.heads * s.head_dim}, q_bkgte.options());
  for (const Block& block : BlocksOf(s)) {
    const at::Tensor p_zms =
        Softmax(BatchedMatMul(RowsOf(q_bkgte, block), KeysOf(k_zse, block).transpose(1, 2)), block,
                s.heads / s.kv_heads);
    PutRows(BatchedMatMul(p_zms, KeysOf(v_zse, block)), block, GroupsView(out_nc, s));
    if (weights != nullptr) weights->push_back(p_zms);
  }
  return out_nc;
}

// Attention of q [B, H, T, E] (scaled already), k and v [B, K, T, E] as [N, H E].
struct BlockAttention : torch::autograd::Function<BlockAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q_bhte,
                            const at::Tensor& k_bkse, const at::Tensor& v_bkse, AttentionShape s) {
    const at::Tensor q_bkgte =
        q_bhte.view({s.windows, s.kv_heads, s.heads / s.kv_heads, s.tokens, s.head_dim});
    variable_list saved = {q_bkgte, k_bkse.view({-1, s.tokens, s.head_dim}),
                           v_bkse.view({-1, s.tokens, s.head_dim}), s.starts_bt};
    variable_list weights;
    const at::Tensor out_nc = AttendByBlocks(q_bkgte, saved[1], saved[2], s, &weights);
    saved.insert(saved.end(), weights.begin(), weights.end());
    context->save_for_backward(saved);
    context->saved_data["window"] = s.window;
    return out_nc;
  }

  // With S the scores, P = softmax(S), O = P V:
  //   dV = P^T dO,  dP = dO V^T,  dS = P (dP - rowsum(dP P)),  dQ = dS K,  dK = dS^T Q.
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &q_bkgte = saved[0], &k_zse = saved[1], &v_zse = saved[2];
    const int64_t group = q_bkgte.size(2);
    AttentionShape s = {q_bkgte.size(0), q_bkgte.size(3), q_bkgte.size(1) * group,
                        q_bkgte.size(1), q_bkgte.size(4), context->saved_data["window"].toInt()};
    s.starts_bt = saved[3];
    const at::Tensor d_out_bkgte = GroupsView(gradients[0].contiguous(), s);
    const at::Tensor d_q_bkgte = at::empty_like(q_bkgte);
    const at::Tensor d_k_zse = at::zeros_like(k_zse);
    const at::Tensor d_v_zse = at::zeros_like(v_zse);
    size_t next = 4;
    for (const Block& block : BlocksOf(s)) {
      const at::Tensor& p_zms = saved[next++];
      const at::Tensor d_out_zme = RowsOf(d_out_bkgte, block);
      BatchedMatMulAdd(p_zms.transpose(1, 2), d_out_zme, KeysOf(d_v_zse, block));
      const at::Tensor d_s_zms = SoftmaxBackward(
          BatchedMatMul(d_out_zme, KeysOf(v_zse, block).transpose(1, 2)), p_zms, block, group);
      BatchedMatMulAdd(d_s_zms.transpose(1, 2), RowsOf(q_bkgte, block), KeysOf(d_k_zse, block));
      PutRows(BatchedMatMul(d_s_zms, KeysOf(k_zse, block)), block, d_q_bkgte);
    }
    return {d_q_bkgte.view({s.windows, s.heads, s.tokens, s.head_dim}),
            d_k_zse.view({s.windows, s.kv_heads, s.tokens, s.head_dim}),
            d_v_zse.view({s.windows, s.kv_heads, s.tokens, s.head_dim}), at::Tensor()};
  }
};

double ScaleOf(const AttentionShape& s) {
  return s.scale != 0 ? s.scale : 1.0 / std::sqrt(static_cast<double>(s.head_dim));
}

// Copies new keys or values [B, K, T, E] behind the `past` ones of the cache.
void Append(const at::Tensor& x_bkse, int64_t past, at::Tensor* cache_zse) {
  const int64_t matrices = x_bkse.size(0) * x_bkse.size(1), tokens = x_bkse.size(2);
  const int64_t room = cache_zse->defined() ? cache_zse->size(1) : 0;
  if (past + tokens > room) {
    const at::Tensor larger_zse =
        at::empty({matrices, std::max(past + tokens, 2 * past), x_bkse.size(3)}, x_bkse.options());
    if (past > 0) larger_zse.narrow(1, 0, past).copy_(cache_zse->narrow(1, 0, past));
    *cache_zse = larger_zse;
  }
  cache_zse->narrow(1, past, tokens).copy_(x_bkse.view({matrices, tokens, x_bkse.size(3)}));
}

}  // namespace

at::Tensor CausalAttention(const at::Tensor& qkv_nc, const RotaryTable& rotary,
                           const AttentionShape& shape) {
  const int64_t rows = shape.windows * shape.tokens, columns = shape.heads * shape.head_dim;
  if (shape.documents.bounds_d.defined()) {
    const Heads heads = SplitAndRotate(qkv_nc, rotary, shape, 1.0, /*by_token=*/true);
    const auto by_rows = [&](const at::Tensor& x_bhte) {
      return x_bhte.transpose(1, 2).reshape({rows, x_bhte.size(1), shape.head_dim});
    };
    return FlashAttention(by_rows(heads.q_bhte), by_rows(heads.k_bkse), by_rows(heads.v_bkse),
                          shape.documents, shape.window, ScaleOf(shape))
        .reshape({rows, columns});
  }
  if (TakesDeviceRoutes(qkv_nc) && HasFusedAttention()) {
    const double own_scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
    const double q_scale = shape.scale != 0 ? shape.scale / own_scale : 1.0;
    const Heads heads = SplitAndRotate(qkv_nc, rotary, shape, q_scale, /*by_token=*/true);
    return FusedCausalAttention(heads.q_bhte, heads.k_bkse, heads.v_bkse, shape.window,
                                shape.starts_bt)
        .transpose(1, 2)
        .reshape({rows, columns});
  }
  const Heads heads = SplitAndRotate(qkv_nc, rotary, shape, ScaleOf(shape));
  return BlockAttention::apply(heads.q_bhte, heads.k_bkse, heads.v_bkse, shape);
}

at::Tensor CachedAttention(const at::Tensor& qkv_nc, const RotaryTable& rotary,
                           const AttentionShape& shape, KeyValues* cache) {
  const Heads heads = SplitAndRotate(qkv_nc, rotary, shape, ScaleOf(shape));
  Append(heads.k_bkse, shape.past, &cache->k_zse);
  Append(heads.v_bkse, shape.past, &cache->v_zse);
  const at::Tensor q_bkgte = heads.q_bhte.view(
      {shape.windows, shape.kv_heads, shape.heads / shape.kv_heads, shape.tokens, shape.head_dim});
  return AttendByBlocks(q_bkgte, cache->k_zse, cache->v_zse, shape, nullptr);
}

}  // namespace gpuctl::trainer
