#include "trainer/linear/lora_linear.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/linear/matmul.h"
#include "trainer/linear/widths.h"

namespace gpuctl::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kLeast = 1e-12;  // length of a row: one of zeros gives no NaN

// What a pass needs beside the trained tensors; backward gets the same.
struct LoraCall : torch::CustomClassHolder {
  FrozenMatrix weight;
  at::Tensor bias_c;
  at::Tensor base_length_c;
  std::vector<LoraPart> parts;
  double scale = 0;
  DropoutDraw draw;
  bool dora = false;
  bool halves = false;
  bool drops() const { return draw.share > 0; }
};

// One part's views of the tensors.
struct PartView {
  const LoraPart& part;
  int64_t rank;
  int64_t first_rank;  // row in the stacked A, column in h
  int64_t first_b;     // row in the stacked B

  at::Tensor OfA(const at::Tensor& a_rd) const { return a_rd.narrow(0, first_rank, rank); }
  at::Tensor OfH(const at::Tensor& h_nr) const { return h_nr.narrow(1, first_rank, rank); }
  at::Tensor OfB(const at::Tensor& b_cr) const { return b_cr.narrow(0, first_b, part.rows); }
  at::Tensor OfY(const at::Tensor& y) const {
    if (y.dim() == 3) return y.select(0, part.first_row / part.rows);
    return y.narrow(1, part.first_row, part.rows);
  }
  at::Tensor OfV(const at::Tensor& v_nc) const { return v_nc.narrow(1, first_b, part.rows); }
};

std::vector<PartView> ViewsOf(const std::vector<LoraPart>& parts, int64_t rank) {
  std::vector<PartView> views;
  int64_t first_b = 0;
  for (const LoraPart& part : parts) {
    views.push_back({part, rank, static_cast<int64_t>(views.size()) * rank, first_b});
    first_b += part.rows;
  }
  return views;
}

// Returns each row times the factors, rounded only at the end.
at::Tensor Times(const at::Tensor& x_nc, const at::Tensor& factor_c) {
  return at::mul(x_nc, factor_c).to(x_nc.scalar_type());
}

// Returns |W + scale B A| for the rows of all parts, fp32.
at::Tensor LengthsOf(const LoraCall& call, const at::Tensor& a_rd, const at::Tensor& b_cr) {
  const at::Tensor length_c = at::empty_like(call.base_length_c);
  for (const PartView& view : ViewsOf(call.parts, b_cr.size(1))) {
    view.OfB(length_c).copy_(AdaptedRowLengths(call.weight, view.part, view.OfB(call.base_length_c),
                                               view.OfA(a_rd), view.OfB(b_cr), call.scale));
  }
  return length_c;
}

// Returns the factors in the places of their rows, and 1 for rows without an adapter.
at::Tensor Spread(const LoraCall& call, const at::Tensor& factor_c) {
  const at::Tensor all_c = at::ones({call.weight.rows()}, factor_c.options());
  int64_t first = 0;
  for (const LoraPart& part : call.parts) {
    all_c.narrow(0, part.first_row, part.rows).copy_(factor_c.narrow(0, first, part.rows));
    first += part.rows;
  }
  return all_c;
}

struct LoraFunction : torch::autograd::Function<LoraFunction> {
  // The trained tensors are parameters of their own; `magnitude_c` is empty without DoRA.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_nd,
                            const at::Tensor& a_rd, const at::Tensor& b_cr,
                            const at::Tensor& magnitude_c, c10::intrusive_ptr<LoraCall> call) {
    const std::vector<PartView> views = ViewsOf(call->parts, b_cr.size(1));
    at::Tensor y = RoomForLinear(x_nd, call->weight.rows(), call->halves);
    for (const ColumnPart& part : ColumnParts(y)) {
      call->weight.TimesTransposed(x_nd, part.first, part.y_nc.size(1), /*add=*/false, part.y_nc);
    }
    const at::Tensor h_nr = at::empty({x_nd.size(0), a_rd.size(0)}, x_nd.options());
    at::Tensor length_c, factor_c;
    if (call->dora) {
      length_c = LengthsOf(*call, a_rd, b_cr);
      factor_c = Widen(magnitude_c).div(length_c);
    }
    at::Tensor v;  // DoRA: W x + scale B A x, of the rows with adapters
    if (call->drops() && call->dora) v = at::empty({x_nd.size(0), b_cr.size(0)}, x_nd.options());
    if (!call->drops() && !views.empty()) MatMulInto(x_nd, a_rd.t(), /*add=*/false, h_nr);
    for (const PartView& view : views) {
      if (!call->drops()) continue;
      const at::Tensor dropped_nd = DropInputs(call->draw, view.part.module, x_nd);
      MatMulInto(dropped_nd, view.OfA(a_rd).t(), /*add=*/false, view.OfH(h_nr));
      if (!call->dora) continue;
      call->weight.TimesTransposed(dropped_nd, view.part.first_row, view.part.rows, /*add=*/false,
                                   view.OfV(v));
      view.OfY(y).sub_(view.OfV(v));
    }
    h_nr.mul_(call->scale);
    for (const PartView& view : views) {
      MatMulInto(view.OfH(h_nr), view.OfB(b_cr).t(), /*add=*/true,
                 v.defined() ? view.OfV(v) : view.OfY(y));
      if (v.defined()) view.OfY(y).add_(Times(view.OfV(v), view.OfB(factor_c)));
    }
    if (call->dora && !call->drops()) {
      v = y;
      y = Times(v, AlongColumns(Spread(*call, factor_c), y));
    }
    if (call->bias_c.defined()) y.add_(AlongColumns(call->bias_c, y));
    context->save_for_backward({x_nd, a_rd, b_cr, h_nr, v, length_c, magnitude_c});
    context->saved_data["x"] = x_nd.requires_grad();
    context->saved_data["call"] = c10::IValue::make_capsule(std::move(call));
    return y;
  }

  // With h = scale A x and y = W x + B h:  dB = dy^T h,  dh = scale dy B,  dA = dh^T x,
  // dx = dy W + dh A. With DoRA, v = W x + B h and y = f v: dv = f dy takes the place of dy, and
  // df = sum over the rows of dy v. With dropout, x of the adapters is the dropped one; then DoRA
  // is y = W x - W x' + f (W x' + B h).
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x_nd = saved[0], &a_rd = saved[1], &b_cr = saved[2], &h_nr = saved[3];
    const auto capsule = context->saved_data["call"].toCapsule();
    const auto& call = static_cast<const LoraCall&>(*capsule);
    const bool needs_x = context->saved_data["x"].toBool();
    const at::Tensor dy = gradients[0].contiguous();
    at::Tensor dv = dy, d_magnitude_c;
    if (call.dora) {
      d_magnitude_c = MagnitudeGradient(call, saved, dy);
      dv = Times(dy, AlongColumns(Spread(call, Widen(saved[6]).div(saved[5])), dy));
    }
    const at::Tensor dh_nr = at::empty_like(h_nr), db_cr = at::empty_like(b_cr);
    const std::vector<PartView> views = ViewsOf(call.parts, b_cr.size(1));
    for (const PartView& view : views) {
      MatMulInto(view.OfY(dv), view.OfB(b_cr), /*add=*/false, view.OfH(dh_nr));
      MatMulInto(view.OfY(dv).t(), view.OfH(h_nr), /*add=*/false, view.OfB(db_cr));
    }
    dh_nr.mul_(call.scale);
    at::Tensor dx_nd, da_rd = at::empty_like(a_rd);
    if (needs_x) {
      // With dropout, what DoRA changes goes through the dropped inputs.
      dx_nd = at::empty_like(x_nd);
      for (const ColumnPart& part : ColumnParts(call.drops() ? dy : dv)) {
        call.weight.Times(part.y_nc, part.first, part.y_nc.size(1), /*add=*/part.first > 0, dx_nd);
      }
    }
    if (call.drops()) {
      for (const PartView& view : views) {
        MatMulInto(view.OfH(dh_nr).t(), DropInputs(call.draw, view.part.module, x_nd),
                   /*add=*/false, view.OfA(da_rd));
        if (needs_x) AddDropped(call, view, a_rd, dh_nr, dv, dy, dx_nd);
      }
    } else if (!views.empty()) {
      MatMulInto(dh_nr.t(), x_nd, /*add=*/false, da_rd);
      if (needs_x) MatMulInto(dh_nr, a_rd, /*add=*/true, dx_nd);
    }
    return {dx_nd, da_rd, db_cr, d_magnitude_c, at::Tensor()};
  }

  // Returns the gradient of the magnitudes m, where f = m / length.
  static at::Tensor MagnitudeGradient(const LoraCall& call, const variable_list& saved,
                                      const at::Tensor& dy) {
    const at::Tensor &v = saved[4], &length_c = saved[5], &magnitude_c = saved[6];
    const at::Tensor sum_c = at::empty_like(length_c);
    for (const PartView& view : ViewsOf(call.parts, saved[2].size(1))) {
      const at::Tensor v_part_nc = call.drops() ? view.OfV(v) : view.OfY(v);
      view.OfB(sum_c).copy_(at::mul(Widen(view.OfY(dy)), v_part_nc).sum(at::IntArrayRef({0})));
    }
    return sum_c.div_(length_c).to(magnitude_c.scalar_type());
  }

  // Adds what comes through a part's dropped inputs to dx.
  static void AddDropped(const LoraCall& call, const PartView& view, const at::Tensor& a_rd,
                         const at::Tensor& dh_nr, const at::Tensor& dv, const at::Tensor& dy,
                         const at::Tensor& dx_nd) {
    const at::Tensor part_nd = MatMul(view.OfH(dh_nr), view.OfA(a_rd));
    if (call.dora) {
      call.weight.Times(view.OfY(dv).sub(view.OfY(dy)), view.part.first_row, view.part.rows,
                        /*add=*/true, part_nd);
    }
    dx_nd.add_(DropInputs(call.draw, view.part.module, part_nd));
  }
};

}  // namespace

at::Tensor LoraLinear(const at::Tensor& x_nd, const at::Tensor& weight_cd, const at::Tensor& bias_c,
                      const LoraWeights& lora, bool halves) {
  const bool packed = !lora.packed_rows.empty();
  if (!lora.a_rd.defined() && !packed && !FrozenMatrix::IsInStrips(weight_cd)) {
    return Linear(x_nd, weight_cd, bias_c, halves);
  }
  auto call = c10::make_intrusive<LoraCall>();
  call->weight = packed ? FrozenMatrix(weight_cd, lora.packed_rows, x_nd.size(1))
                        : FrozenMatrix(weight_cd, x_nd.size(1));
  call->bias_c = bias_c;
  call->base_length_c = lora.base_length_c;
  call->parts = lora.parts;
  call->scale = lora.scale;
  if (lora.draw != nullptr) call->draw = *lora.draw;
  call->dora = lora.magnitude_c.defined();
  call->halves = halves;
  const at::Tensor none = at::empty({0, x_nd.size(1)}, x_nd.options());
  const bool adapted = lora.a_rd.defined();
  return LoraFunction::apply(x_nd, adapted ? lora.a_rd : none, adapted ? lora.b_cr : none,
                             call->dora ? lora.magnitude_c : none, std::move(call));
}

// |w + s b A|^2 = |w|^2 + 2 s b (A w) + s^2 b (A A^T) b
at::Tensor AdaptedRowLengths(const FrozenMatrix& weight, const LoraPart& part,
                             const at::Tensor& length_c, const at::Tensor& a_rd,
                             const at::Tensor& b_cr, double scale) {
  const at::Tensor a_wide_rd = Widen(a_rd), b_wide_cr = Widen(b_cr);
  const at::Tensor along_rc = at::empty({a_rd.size(0), part.rows}, a_rd.options());
  weight.TimesTransposed(a_rd, part.first_row, part.rows, /*add=*/false, along_rc);
  const at::Tensor gram_cr = MatMul(b_wide_cr, MatMul(a_wide_rd, a_wide_rd.t()));
  const at::Tensor more_c = at::mul(Widen(along_rc).t(), 2 * scale)
                                .add_(gram_cr, scale * scale)
                                .mul_(b_wide_cr)
                                .sum(at::IntArrayRef({1}));
  return at::mul(length_c, length_c).add_(more_c).clamp_min_(kLeast * kLeast).sqrt_();
}

}  // namespace gpuctl::trainer
