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

// Keeps only its input; backward computes the activation again.
template <typename Activation>
struct GatedFunction : torch::autograd::Function<GatedFunction<Activation>> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_up_n2f) {
    context->save_for_backward({gate_up_n2f});
    const int64_t ffn = gate_up_n2f.size(1) / 2;
    if (UsesCpuKernels(gate_up_n2f)) {
      const at::Tensor out_nf = at::empty({gate_up_n2f.size(0), ffn}, gate_up_n2f.options());
      ForRanges(out_nf.size(0), RowGrain(ffn), [&](int64_t begin, int64_t end) {
        Activation::kForward(end - begin, ffn, gate_up_n2f.data_ptr<float>() + begin * 2 * ffn,
                             out_nf.data_ptr<float>() + begin * ffn);
      });
      return out_nf;
    }
    return Activation::Of(gate_up_n2f.narrow(1, 0, ffn)).mul_(gate_up_n2f.narrow(1, ffn, ffn));
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor gate_up_n2f = context->get_saved_variables()[0];
    const int64_t ffn = gate_up_n2f.size(1) / 2;
    const at::Tensor dy_nf = gradients[0].contiguous();
    at::Tensor d_gate_up_n2f = at::empty_like(gate_up_n2f);
    if (UsesCpuKernels(gate_up_n2f)) {
      ForRanges(dy_nf.size(0), RowGrain(ffn), [&](int64_t begin, int64_t end) {
        Activation::kBackward(end - begin, ffn, gate_up_n2f.data_ptr<float>() + begin * 2 * ffn,
                              dy_nf.data_ptr<float>() + begin * ffn,
                              d_gate_up_n2f.data_ptr<float>() + begin * 2 * ffn);
      });
      return {d_gate_up_n2f};
    }
    const at::Tensor gate_nf = gate_up_n2f.narrow(1, 0, ffn);
    const at::Tensor up_nf = gate_up_n2f.narrow(1, ffn, ffn);
    at::Tensor d_up_nf = d_gate_up_n2f.narrow(1, ffn, ffn);
    at::mul_out(d_up_nf, dy_nf, Activation::Of(gate_nf));
    Activation::BackwardOut(at::mul(dy_nf, up_nf), gate_nf, d_gate_up_n2f.narrow(1, 0, ffn));
    return {d_gate_up_n2f};
  }
};

}  // namespace

at::Tensor SwiGlu(const at::Tensor& gate_up_n2f) { return GatedFunction<Silu>::apply(gate_up_n2f); }

at::Tensor GeGlu(const at::Tensor& gate_up_n2f) {
  return GatedFunction<TanhGelu>::apply(gate_up_n2f);
}

}  // namespace gpuctl::trainer
