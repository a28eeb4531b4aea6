// The routes that need operators of LibTorch 2: with an older one, stand-ins with the schemas of
// LibTorch 2.5 take their place, check the arguments and compute the same plainly.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/version.h>

#include <cmath>
#include <limits>

#include "trainer/model/dispatch.h"
#include "trainer/optimizer/adamw.h"
#include "trainer/tests/tensors.h"

namespace gpuctl::trainer {
namespace {

#if TORCH_VERSION_MAJOR < 2

int attention_calls = 0;
int adamw_calls = 0;

at::Tensor AttentionStandIn(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const c10::optional<at::Tensor>& mask, double dropout, bool causal,
                            c10::optional<double> scale, bool enable_gqa) {
  ++attention_calls;
  EXPECT_EQ(dropout, 0);
  EXPECT_FALSE(scale);
  EXPECT_NE(causal, mask.has_value());
  const int64_t group = q.size(1) / k.size(1);
  EXPECT_EQ(enable_gqa, group > 1) << "keys must not be repeated";
  const at::Tensor scores = at::matmul(q, k.repeat_interleave(group, 1).transpose(2, 3)) /
                            std::sqrt(static_cast<double>(q.size(3)));
  const at::Tensor seen = mask ? *mask : at::ones({q.size(2), q.size(2)}, at::kBool).tril();
  EXPECT_EQ(seen.scalar_type(), at::kBool);
  const at::Tensor weights =
      scores.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity()).softmax(-1);
  return at::matmul(weights, v.repeat_interleave(group, 1));
}

void AdamwStandIn(at::TensorList self, at::TensorList gradients, at::TensorList exp_avgs,
                  at::TensorList exp_avg_sqs, at::TensorList max_exp_avg_sqs,
                  at::TensorList state_steps, double lr, double beta1, double beta2,
                  double weight_decay, double eps, bool amsgrad, bool maximize,
                  const c10::optional<at::Tensor>& grad_scale,
                  const c10::optional<at::Tensor>& found_inf) {
  ++adamw_calls;
  EXPECT_TRUE(max_exp_avg_sqs.empty());
  EXPECT_FALSE(amsgrad);
  EXPECT_FALSE(maximize);
  EXPECT_FALSE(found_inf.has_value());
  ASSERT_TRUE(grad_scale.has_value());
  ASSERT_EQ(state_steps.size(), self.size());
  for (size_t i = 0; i < self.size(); ++i) {
    EXPECT_EQ(state_steps[i].scalar_type(), at::kFloat);
    const double t = state_steps[i].item<double>();
    const at::Tensor g = gradients[i] / *grad_scale;
    self[i].mul_(1 - lr * weight_decay);
    exp_avgs[i].lerp_(g, 1 - beta1);
    exp_avg_sqs[i].mul_(beta2).addcmul_(g, g, 1 - beta2);
    const at::Tensor root = exp_avg_sqs[i].sqrt() / std::sqrt(1 - std::pow(beta2, t)) + eps;
    self[i].addcdiv_(exp_avgs[i], root, -lr / (1 - std::pow(beta1, t)));
  }
}

TORCH_LIBRARY_FRAGMENT(aten, library) {
  library.def(
      "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None,"
      " float dropout_p=0.0, bool is_causal=False, *, float? scale=None, bool enable_gqa=False)"
      " -> Tensor");
  library.def(
      "_fused_adamw_(Tensor(a!)[] self, Tensor(b!)[] grads, Tensor(c!)[] exp_avgs,"
      " Tensor(d!)[] exp_avg_sqs, Tensor(e!)[] max_exp_avg_sqs, Tensor[] state_steps, *, float lr,"
      " float beta1, float beta2, float weight_decay, float eps, bool amsgrad, bool maximize,"
      " Tensor? grad_scale=None, Tensor? found_inf=None) -> ()");
}
TORCH_LIBRARY_IMPL(aten, CompositeImplicitAutograd, library) {
  library.impl("scaled_dot_product_attention", TORCH_FN(AttentionStandIn));
  library.impl("_fused_adamw_", TORCH_FN(AdamwStandIn));
}

TEST(StandInsTest, FusedAttentionSharesKeysAndHidesOtherDocuments) {
  ASSERT_TRUE(HasFusedAttention());
  constexpr int64_t kTokens = 9;
  const at::Tensor starts = at::tensor({0, 0, 0, 3, 3, 5, 5, 5, 5}, at::kLong).view({1, kTokens});
  for (const int64_t kv_heads : {1, 2, 4}) {
    const at::Tensor q = RandomTensor({1, 4, kTokens, 6}, at::kDouble, 1).requires_grad_(true);
    const at::Tensor k = RandomTensor({1, kv_heads, kTokens, 6}, at::kDouble, 2);
    const at::Tensor v = RandomTensor({1, kv_heads, kTokens, 6}, at::kDouble, 3);
    const int calls = attention_calls;
    const at::Tensor plain = FusedCausalAttention(q, k, v, 0, {});
    const at::Tensor packed = FusedCausalAttention(q, k, v, 0, starts);
    const at::Tensor near = FusedCausalAttention(q, k, v, 2, starts);
    EXPECT_EQ(attention_calls, calls + 3);
    packed.sum().backward();
    EXPECT_TRUE(q.grad().defined());
    for (const auto& [first, last] : {std::make_pair(0, 3), {3, 5}, {5, 9}}) {
      const auto part = [&, begin = first, end = last](const at::Tensor& x) {
        return x.detach().slice(2, begin, end);
      };
      EXPECT_LT(
          RelativeDifference(part(packed), FusedCausalAttention(part(q), part(k), part(v), 0, {})),
          1e-12);
      EXPECT_LT(
          RelativeDifference(part(near), FusedCausalAttention(part(q), part(k), part(v), 2, {})),
          1e-12);
    }
    EXPECT_GT(RelativeDifference(packed.detach(), plain.detach()), 1e-3);
  }
}

TEST(StandInsTest, FusedAdamwDoesWhatOursDoes) {
  ASSERT_TRUE(HasFusedAdamw());
  const AdamwNumbers numbers = {1e-2, 0.9, 0.95, 0.1, 1e-8, 3};
  const at::Tensor clip = at::full({}, 0.25f);
  AdamwTensors tensors;
  std::vector<at::Tensor> expected;
  for (uint64_t i = 0; i < 3; ++i) {
    const std::vector<int64_t> shape = {4, static_cast<int64_t>(i) + 1};
    tensors.parameters.push_back(RandomTensor(shape, at::kFloat, 4 * i));
    tensors.gradients.push_back(RandomTensor(shape, at::kFloat, 4 * i + 1));
    tensors.exp_avgs.push_back(RandomTensor(shape, at::kFloat, 4 * i + 2));
    tensors.exp_avg_sqs.push_back(RandomTensor(shape, at::kFloat, 4 * i + 3).square());
    expected.push_back(tensors.parameters.back().clone());
    const AdamwStep step = {numbers.lr,  numbers.beta1,        numbers.beta2,
                            numbers.eps, numbers.weight_decay, numbers.t};
    AdamwUpdate(step, expected.back(), tensors.gradients.back().clone(),
                tensors.exp_avgs.back().clone(), tensors.exp_avg_sqs.back().clone(), clip);
  }
  FusedAdamw(tensors, numbers, clip);
  EXPECT_EQ(adamw_calls, 1);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_LT(RelativeDifference(tensors.parameters[i], expected[i]), 1e-6);
  }
}

#endif

}  // namespace
}  // namespace gpuctl::trainer
