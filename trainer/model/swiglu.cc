#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/cpu/kernels.h"
#include "trainer/linear/threads.h"
#include "trainer/linear/widths.h"
#include "trainer/model/functions.h"

namespace gpuctl::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Silu {
  static constexpr auto kForward = cpu::SwiGlu;
  static constexpr auto kBackward = cpu::SwiGluBackward;
  static at::Tensor Of(const at::Tensor& x) { return at::silu(x); }
  static void BackwardOut(const at::Tensor& dy, const at::Tensor& x, at::Tensor dx) {
    at::silu_backward_out(dx, dy, x);
  }
};

struct TanhGelu {
  static constexpr auto kForward = cpu::GeGlu;
  static constexpr auto kBackward = cpu::GeGluBackward;
  static at::Tensor Of(const at::Tensor& x) { return at::gelu(x, "tanh"); }
  static void BackwardOut(const at::Tensor& dy, const at::Tensor& x, at::Tensor dx) {
    dx.copy_(at::gelu_backward(dy, x, "tanh"));
  }
};

struct GateUp {
  at::Tensor gate_nf;
  at::Tensor up_nf;
};

GateUp HalvesOf(const at::Tensor& gate_up) {
  if (gate_up.dim() == 3) return {gate_up.select(0, 0), gate_up.select(0, 1)};
  const int64_t ffn = gate_up.size(1) / 2;
  return {gate_up.narrow(1, 0, ffn), gate_up.narrow(1, ffn, ffn)};
}

// Keeps only its input; backward computes the activation again.
template <typename Activation>
struct GatedFunction : torch::autograd::Function<GatedFunction<Activation>> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_up) {
    context->save_for_backward({gate_up});
    const GateUp halves = HalvesOf(gate_up);
    const int64_t ffn = halves.gate_nf.size(1);
    if (UsesCpuKernels(gate_up) && gate_up.dim() == 2) {
      const at::Tensor out_nf = at::empty({gate_up.size(0), ffn}, gate_up.options());
      ForRanges(out_nf.size(0), RowGrain(ffn), [&](int64_t begin, int64_t end) {
        Activation::kForward(end - begin, ffn, gate_up.data_ptr<float>() + begin * 2 * ffn,
                             out_nf.data_ptr<float>() + begin * ffn);
      });
      return out_nf;
    }
    return Activation::Of(halves.gate_nf).mul_(halves.up_nf);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor gate_up = context->get_saved_variables()[0];
    const GateUp halves = HalvesOf(gate_up);
    const int64_t ffn = halves.gate_nf.size(1);
    const at::Tensor dy_nf = gradients[0].contiguous();
    at::Tensor d_gate_up = at::empty_like(gate_up);
    if (UsesCpuKernels(gate_up) && gate_up.dim() == 2) {
      ForRanges(dy_nf.size(0), RowGrain(ffn), [&](int64_t begin, int64_t end) {
        Activation::kBackward(end - begin, ffn, gate_up.data_ptr<float>() + begin * 2 * ffn,
                              dy_nf.data_ptr<float>() + begin * ffn,
                              d_gate_up.data_ptr<float>() + begin * 2 * ffn);
      });
      return {d_gate_up};
    }
    GateUp d_halves = HalvesOf(d_gate_up);
    at::mul_out(d_halves.up_nf, dy_nf, Activation::Of(halves.gate_nf));
    Activation::BackwardOut(at::mul(dy_nf, halves.up_nf), halves.gate_nf, d_halves.gate_nf);
    return {d_gate_up};
  }
};

}  // namespace

at::Tensor SwiGlu(const at::Tensor& gate_up) { return GatedFunction<Silu>::apply(gate_up); }

at::Tensor GeGlu(const at::Tensor& gate_up) { return GatedFunction<TanhGelu>::apply(gate_up); }

}  // namespace gpuctl::trainer
