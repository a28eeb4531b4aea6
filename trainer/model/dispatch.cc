#include "trainer/model/dispatch.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>

namespace gpuctl::trainer {
namespace {
constexpr char kAttention[] = "aten::scaled_dot_product_attention";
constexpr char kAdamw[] = "aten::_fused_adamw_";

bool TakesArgument(const std::string& name, const std::string& argument) {
  const auto found = c10::Dispatcher::singleton().findSchema({name, ""});
  return found && found->schema().argumentIndexWithName(argument).has_value();
}
}  // namespace

bool HasOperator(const std::string& name) {
  const auto found = c10::Dispatcher::singleton().findSchema({name, ""});
  return static_cast<bool>(found);
}

at::Tensor CallOperator(const std::string& name, const std::vector<c10::IValue>& positional,
                        const std::map<std::string, c10::IValue>& named) {
  const auto found = c10::Dispatcher::singleton().findSchema({name, ""});
  TORCH_CHECK(found, "call ", name, ": this LibTorch does not have it");
  const auto& arguments = found->schema().arguments();
  torch::jit::Stack stack(positional);
  for (size_t i = positional.size(); i < arguments.size(); ++i) {
    const auto given = named.find(arguments[i].name());
    if (given != named.end()) {
      stack.push_back(given->second);
    } else {
      TORCH_CHECK(arguments[i].default_value(), "call ", name, ": ", arguments[i].name(),
                  " has no default");
      stack.push_back(*arguments[i].default_value());
    }
  }
  found->callBoxed(&stack);
  return stack.empty() ? at::Tensor() : stack.at(0).toTensor();
}

bool HasFusedAttention() {
  static const bool has = HasOperator(kAttention);
  return has;
}

at::Tensor FusedCausalAttention(const at::Tensor& q_bhte, const at::Tensor& k_bkse,
                                const at::Tensor& v_bkse, int64_t window,
                                const at::Tensor& starts_bt) {
  static const bool shares = TakesArgument(kAttention, "enable_gqa");
  const int64_t group = q_bhte.size(1) / k_bkse.size(1);
  const auto spread = [&](const at::Tensor& x) {
    return group == 1 || shares ? x : at::repeat_interleave(x, group, 1);
  };
  std::map<std::string, c10::IValue> named;
  if (shares && group > 1) named["enable_gqa"] = true;
  const int64_t tokens = q_bhte.size(2);
  if (starts_bt.defined() || (window > 0 && window < tokens)) {
    at::Tensor seen = at::ones({tokens, tokens}, q_bhte.options().dtype(at::kBool)).tril();
    if (window > 0 && window < tokens) seen = seen.triu(1 - window);
    if (starts_bt.defined()) {
      const at::Tensor place_t = at::arange(tokens, starts_bt.options());
      seen = at::logical_and(seen, at::ge(place_t, starts_bt.unsqueeze(-1))).unsqueeze(1);
    }
    named["attn_mask"] = seen;
  } else {
    named["is_causal"] = true;
  }
  return CallOperator(kAttention, {q_bhte, spread(k_bkse), spread(v_bkse)}, named);
}

bool HasFusedAdamw() {
  static const bool has = HasOperator(kAdamw);
  return has;
}

void FusedAdamw(const AdamwTensors& tensors, const AdamwNumbers& numbers, const at::Tensor& clip) {
  const at::Tensor t = at::full({}, static_cast<double>(numbers.t), clip.options());
  CallOperator(kAdamw,
               {tensors.parameters, tensors.gradients, tensors.exp_avgs, tensors.exp_avg_sqs,
                std::vector<at::Tensor>(),  // no maxima of the squares
                std::vector<at::Tensor>(tensors.parameters.size(), t)},
               {{"lr", numbers.lr},
                {"beta1", numbers.beta1},
                {"beta2", numbers.beta2},
                {"weight_decay", numbers.weight_decay},
                {"eps", numbers.eps},
                {"amsgrad", false},
                {"maximize", false},
                // It divides the gradients by this.
                {"grad_scale", clip.reciprocal()}});
}

}  // namespace gpuctl::trainer
