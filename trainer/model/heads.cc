// Legend: b windows, t and s tokens, h query heads, k key heads, e head_dim, c columns of the fused
// projection.

#include "trainer/model/heads.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sub.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>

#include "trainer/cpu/kernels.h"
#include "trainer/linear/threads.h"
#include "trainer/linear/widths.h"

namespace gpuctl::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// One of q, k, v within the fused projection.
struct Part {
  int64_t first;  // head
  int64_t heads;
  bool turned;
  double scale;
};

std::array<Part, 3> PartsOf(const AttentionShape& s, double q_scale) {
  return {{{0, s.heads, true, q_scale},
           {s.heads, s.kv_heads, true, 1.0},
           {s.heads + s.kv_heads, s.kv_heads, false, 1.0}}};
}

cpu::HeadMove MoveOf(const AttentionShape& s, const Part& part) {
  return {s.windows,
          s.tokens,
          part.heads,
          s.head_dim,
          (s.heads + 2 * s.kv_heads) * s.head_dim,
          static_cast<float>(part.scale),
          s.starts_bt.defined() ? s.tokens : 0};
}

// Returns the part as a view [B, heads, T, E] of the fused projection.
at::Tensor ViewOf(const at::Tensor& qkv_nc, const AttentionShape& s, const Part& part) {
  return qkv_nc.view({s.windows, s.tokens, s.heads + 2 * s.kv_heads, s.head_dim})
      .narrow(2, part.first, part.heads)
      .transpose(1, 2);
}

// Computes out = x [B, heads, T, E] rotated by the angles (direction 1) or back (-1), in the
// tables' dtype.
void Turn(const at::Tensor& x, const RotaryTable& rotary, double direction, const at::Tensor& out) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor wide = Widen(x);
  const at::Tensor first = wide.narrow(-1, 0, half);
  const at::Tensor second = wide.narrow(-1, half, half);
  // One for all windows, or one for each.
  const at::Tensor cos_bte = rotary.cos_te.view({-1, 1, x.size(2), half});
  const at::Tensor sin_bte = rotary.sin_te.view({-1, 1, x.size(2), half});
  out.narrow(-1, 0, half).copy_(at::mul(first, cos_bte).addcmul_(second, sin_bte, -direction));
  out.narrow(-1, half, half).copy_(at::mul(second, cos_bte).addcmul_(first, sin_bte, direction));
}

void Move(const at::Tensor& from, const RotaryTable& rotary, const Part& part, double direction,
          at::Tensor to) {
  if (part.turned) {
    Turn(from, rotary, direction, to);
  } else {
    to.copy_(from);
  }
  if (part.scale != 1.0) to.mul_(part.scale);
}

const float* AnglesOrNull(const at::Tensor& angles_te, const Part& part) {
  return part.turned ? angles_te.data_ptr<float>() : nullptr;
}

at::Tensor SplitPart(const at::Tensor& qkv_nc, const RotaryTable& rotary, const AttentionShape& s,
                     const Part& part, bool by_token) {
  const bool kernels = UsesCpuKernels(qkv_nc);
  const at::Tensor split =
      by_token && !kernels
          ? at::empty({s.windows, s.tokens, part.heads, s.head_dim}, qkv_nc.options())
                .transpose(1, 2)
          : at::empty({s.windows, part.heads, s.tokens, s.head_dim}, qkv_nc.options());
  if (kernels) {
    ForRanges(s.windows * s.tokens, RowGrain(part.heads * s.head_dim),
              [&](int64_t first, int64_t last) {
                cpu::SplitHeads(MoveOf(s, part), first, last, AnglesOrNull(rotary.cos_te, part),
                                AnglesOrNull(rotary.sin_te, part),
                                qkv_nc.data_ptr<float>() + part.first * s.head_dim,
                                split.data_ptr<float>());
              });
  } else {
    Move(ViewOf(qkv_nc, s, part), rotary, part, 1.0, split);
  }
  return split;
}

void MergePart(const at::Tensor& split, const RotaryTable& rotary, const AttentionShape& s,
               const Part& part, const at::Tensor& qkv_nc) {
  if (UsesCpuKernels(qkv_nc)) {
    const at::Tensor dense = split.contiguous();
    ForRanges(s.windows * s.tokens, RowGrain(part.heads * s.head_dim),
              [&](int64_t first, int64_t last) {
                cpu::MergeHeads(MoveOf(s, part), first, last, AnglesOrNull(rotary.cos_te, part),
                                AnglesOrNull(rotary.sin_te, part), dense.data_ptr<float>(),
                                qkv_nc.data_ptr<float>() + part.first * s.head_dim);
              });
  } else {
    Move(split, rotary, part, -1.0, ViewOf(qkv_nc, s, part));
  }
}

// Rotation is orthogonal, so its gradient is the rotation back.
struct SplitAndRotateFunction : torch::autograd::Function<SplitAndRotateFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& qkv_nc,
                               const at::Tensor& cos_te, const at::Tensor& sin_te, AttentionShape s,
                               double q_scale, bool by_token) {
    context->save_for_backward({cos_te, sin_te, s.starts_bt});
    context->saved_data["shape"] =
        std::vector<int64_t>{s.windows, s.tokens, s.heads, s.kv_heads, s.head_dim};
    context->saved_data["q_scale"] = q_scale;
    variable_list parts;
    for (const Part& part : PartsOf(s, q_scale)) {
      parts.push_back(SplitPart(qkv_nc, {cos_te, sin_te}, s, part, by_token));
    }
    return parts;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const std::vector<int64_t> v = context->saved_data["shape"].toIntVector();
    AttentionShape s = {v[0], v[1], v[2], v[3], v[4]};
    s.starts_bt = saved[2];
    const at::Tensor d_qkv_nc = at::empty(
        {s.windows * s.tokens, (s.heads + 2 * s.kv_heads) * s.head_dim}, gradients[0].options());
    size_t i = 0;
    for (const Part& part : PartsOf(s, context->saved_data["q_scale"].toDouble())) {
      MergePart(gradients[i++], {saved[0], saved[1]}, s, part, d_qkv_nc);
    }
    return {d_qkv_nc, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

void ScaleFrequencies(const RopeScaling& scaling, at::Tensor frequency_e) {
  if (scaling.kind == "default") return;
  if (scaling.kind == "linear") {
    frequency_e.div_(scaling.factor);
    return;
  }
  double* frequency = frequency_e.data_ptr<double>();
  for (int64_t e = 0; e < frequency_e.numel(); ++e) {
    const double turns =
        static_cast<double>(scaling.original_context) * frequency[e] / 6.283185307179586;
    const double kept = std::clamp(
        (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor),
        0.0, 1.0);
    frequency[e] = (1 - kept) * frequency[e] / scaling.factor + kept * frequency[e];
  }
}

}  // namespace

RotaryTable MakeRotaryTable(int64_t context, int64_t head_dim, double theta,
                            const at::TensorOptions& options, const RopeScaling& scaling) {
  const auto in_double = at::TensorOptions(at::kDouble);
  const at::Tensor exponent_e =
      at::arange(0, head_dim, 2, in_double).mul_(-1.0 / static_cast<double>(head_dim));
  const at::Tensor frequency_e = at::pow(theta, exponent_e);
  ScaleFrequencies(scaling, frequency_e);
  const at::Tensor angle_te = at::outer(at::arange(context, in_double), frequency_e);
  // Narrowed here: MPS has no fp64.
  const auto there = [&](const at::Tensor& x_te) {
    return x_te.to(c10::typeMetaToScalarType(options.dtype())).to(options.device());
  };
  return {there(angle_te.cos()), there(angle_te.sin())};
}

RotaryTable RotaryOfDocuments(const RotaryTable& rotary, const at::Tensor& starts_bt) {
  const at::Tensor place_t = at::arange(starts_bt.size(1), starts_bt.options());
  const at::Tensor position_n = at::sub(place_t, starts_bt).reshape({-1});
  return {rotary.cos_te.index_select(0, position_n), rotary.sin_te.index_select(0, position_n)};
}

Heads SplitAndRotate(const at::Tensor& qkv_nc, const RotaryTable& rotary,
                     const AttentionShape& shape, double q_scale, bool by_token) {
  const bool packed = shape.starts_bt.defined();
  const int64_t first = packed ? 0 : shape.past;
  const int64_t rows = packed ? shape.windows * shape.tokens : shape.tokens;
  const variable_list parts =
      SplitAndRotateFunction::apply(qkv_nc, rotary.cos_te.narrow(0, first, rows),
                                    rotary.sin_te.narrow(0, first, rows), shape, q_scale, by_token);
  return {parts[0], parts[1], parts[2]};
}

}  // namespace gpuctl::trainer
