#include "trainer/model/dispatch.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>

namespace gpuctl::trainer {
namespace {
constexpr char kAttention[] = "aten::scaled_dot_product_attention";
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
  return stack.at(0).toTensor();
}

bool HasFusedAttention() {
  static const bool has = HasOperator(kAttention);
  return has;
}

at::Tensor FusedCausalAttention(const at::Tensor& q_bhte, const at::Tensor& k_bkse,
                                const at::Tensor& v_bkse, int64_t window,
                                const at::Tensor& starts_bt) {
  const int64_t group = q_bhte.size(1) / k_bkse.size(1);
  const auto spread = [&](const at::Tensor& x) {
    return group == 1 ? x : at::repeat_interleave(x, group, 1);
  };
  const int64_t tokens = q_bhte.size(2);
  if (starts_bt.defined() || (window > 0 && window < tokens)) {
    at::Tensor seen = at::ones({tokens, tokens}, q_bhte.options().dtype(at::kBool)).tril();
    if (window > 0 && window < tokens) seen = seen.triu(1 - window);
    if (starts_bt.defined()) {
      const at::Tensor place_t = at::arange(tokens, starts_bt.options());
      seen = at::logical_and(seen, at::ge(place_t, starts_bt.unsqueeze(-1))).unsqueeze(1);
    }
    return CallOperator(kAttention, {q_bhte, spread(k_bkse), spread(v_bkse)},
                        {{"attn_mask", seen}});
  }
  return CallOperator(kAttention, {q_bhte, spread(k_bkse), spread(v_bkse)}, {{"is_causal", true}});
}

}  // namespace gpuctl::trainer
