#include "trainer/linear/recompute.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <utility>

namespace gpuctl::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Network = std::function<at::Tensor(const at::Tensor&)>;

// Keeps the part in the graph.
struct KeptNetwork : torch::CustomClassHolder {
  explicit KeptNetwork(Network of) : part(std::move(of)) {}
  const Network part;
};

struct RecomputedFunction : torch::autograd::Function<RecomputedFunction> {
  // `anchor` requires a gradient, so that the backward pass comes here even where x needs none.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& /*anchor*/, const Network& part,
                            const RecomputeRoom& room) {
    context->save_for_backward({x});
    context->saved_data["part"] = c10::IValue::make_capsule(c10::make_intrusive<KeptNetwork>(part));
    context->saved_data["x_needs_gradient"] = x.requires_grad();
    const at::Tensor y = part(x);
    return room.result.defined() ? room.result.copy_(y) : y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto kept =
        c10::static_intrusive_pointer_cast<KeptNetwork>(context->saved_data["part"].toCapsule());
    const bool needed = context->saved_data["x_needs_gradient"].toBool();
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_(needed);
    at::Tensor again;
    {
      const at::AutoGradMode with_gradients(true);
      again = kept->part(x);
    }
    // Nothing of a frozen part wants a gradient.
    if (!again.requires_grad()) return {{}, {}, {}, {}};
    torch::autograd::backward({again}, {gradients[0]});
    return {needed ? x.grad() : at::Tensor(), {}, {}, {}};
  }
};

}  // namespace

at::Tensor Recomputed(const Network& part, const at::Tensor& x, const RecomputeRoom& room) {
  const at::Tensor anchor = at::empty({0}, at::TensorOptions(at::kFloat)).requires_grad_(true);
  return RecomputedFunction::apply(x, anchor, part, room);
}

}  // namespace gpuctl::trainer
