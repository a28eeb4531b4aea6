#include "trainer/train/generate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <map>

#include "trainer/model/parameters.h"
#include "trainer/tests/expect_error.h"
#include "trainer/tests/tensors.h"
#include "trainer/train/samples.h"

namespace gpuctl::trainer {
namespace {

// A network with every part that only some families have.
ModelConfig EveryPart() {
  ModelConfig model = {2, 16, 4, 2, 24, 40, 60, 10000.0, 1e-5};
  model.qkv_bias = model.out_bias = model.mlp_bias = model.qk_norm = model.gelu = true;
  model.norm_offset = model.sandwich_norms = model.scaled_embedding = true;
  model.tied_head = false;
  model.head_size = 6;
  model.window = 5;
  model.windowed = {true, false};
  model.local_rope_theta = 100;
  return model;
}

struct Network {
  GptShape shape;
  GptWeights weights;
};

Network MakeNetwork(const ModelConfig& model, at::ScalarType dtype = at::kFloat) {
  std::vector<at::Tensor> flat = InitializeWeights(model, 3);
  for (at::Tensor& weight : flat) weight = weight.add_(weight, 4.0).to(TestDevice(), dtype);
  return {MakeGptShape(model, at::TensorOptions(at::kFloat).device(TestDevice())),
          ArrangeWeights(flat, model)};
}

std::vector<int64_t> SomeTokens(int64_t count) {
  const at::Tensor tokens = RandomIntegers({count}, 0, 60, 4);
  return {tokens.data_ptr<int64_t>(), tokens.data_ptr<int64_t>() + count};
}

// Computes the logits after the last `context` of the tokens, without a cache.
at::Tensor LogitsAnew(const Network& network, const std::vector<int64_t>& tokens) {
  const at::NoGradGuard no_grad;
  const auto size = static_cast<int64_t>(tokens.size());
  const int64_t first = std::max<int64_t>(0, size - network.shape.config.context);
  const at::Tensor tokens_1t =
      at::tensor(tokens, at::kLong).narrow(0, first, size - first).to(TestDevice());
  const at::Tensor hidden = Hidden(network.shape, network.weights, tokens_1t.unsqueeze(0));
  return at::mv(network.weights.head_vd, hidden[hidden.size(0) - 1]);
}

TEST(NextTokenTest, TheCacheChangesNothing) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Network network = MakeNetwork(EveryPart(), dtype);
    const std::vector<int64_t> tokens = SomeTokens(50);  // more than the context of 40
    NextToken next(network.shape, network.weights);
    for (const size_t count : {3, 4, 5, 9, 20, 39, 40, 41, 42, 50}) {
      const std::vector<int64_t> begun(tokens.begin(), tokens.begin() + static_cast<long>(count));
      EXPECT_LT(RelativeDifference(next.Logits(begun), LogitsAnew(network, begun)),
                dtype == at::kFloat ? 1e-5 : 0.05)
          << count << " tokens";
    }
  }
}

TEST(NextTokenTest, OutputThatIsNotFiniteIsAnError) {
  Network network = MakeNetwork(EveryPart());
  network.weights.final_norm_d[3] = std::numeric_limits<float>::quiet_NaN();
  NextToken next(network.shape, network.weights);
  EXPECT_ERROR(next.Logits({1, 2}), ExitCode::kBadData, "not finite");
}

// Returns how often each token is drawn.
std::map<int64_t, double> Shares(const Sampling& sampling) {
  const at::Tensor logits = at::log(at::tensor({0.1f, 0.4f, 0.05f, 0.25f, 0.2f}));
  constexpr uint64_t kDraws = 20000;
  std::map<int64_t, double> shares;
  for (uint64_t i = 0; i < kDraws; ++i) {
    shares[ChooseToken(logits, sampling, i)] += 1.0 / static_cast<double>(kDraws);
  }
  return shares;
}

void ExpectShares(const Sampling& sampling, const std::map<int64_t, double>& expected) {
  const std::map<int64_t, double> found = Shares(sampling);
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [token, share] : expected) EXPECT_NEAR(found.at(token), share, 0.015) << token;
}

TEST(ChooseTokenTest, DrawsByProbability) {
  ExpectShares({1}, {{0, 0.1}, {1, 0.4}, {2, 0.05}, {3, 0.25}, {4, 0.2}});
  ExpectShares({0}, {{1, 1}});
  // Probabilities to the power of 1 / temperature.
  ExpectShares({0.5}, {{0, 0.036}, {1, 0.582}, {2, 0.009}, {3, 0.227}, {4, 0.145}});
}

TEST(ChooseTokenTest, LimitsKeepTheLikeliest) {
  ExpectShares({1, 2}, {{1, 0.4 / 0.65}, {3, 0.25 / 0.65}});
  ExpectShares({1, 100}, {{0, 0.1}, {1, 0.4}, {2, 0.05}, {3, 0.25}, {4, 0.2}});
  ExpectShares({1, 0, 0.6}, {{1, 0.4 / 0.65}, {3, 0.25 / 0.65}});  // 0.4 alone is too little
  ExpectShares({1, 0, 0.3}, {{1, 1}});
  ExpectShares({1, 3, 0.7}, {{1, 0.4 / 0.65}, {3, 0.25 / 0.65}});  // 0.7 of the three's 0.85
  ExpectShares({1, 0, 1, 2}, {{0, 0.2}, {1, 0.8}});                // only tokens below 2
}

TEST(GenerateTest, EndsBeforeAStopTokenAndChecksThePrompt) {
  const Network network = MakeNetwork(EveryPart());
  const auto generate = [&](GenerateRequest request) {
    return GenerateTokens(
        network.shape, network.weights, request, [](int64_t) {}, [] { return false; });
  };
  GenerateRequest request;
  request.prompt = {5, 6};
  request.tokens = 50;
  request.sampling.temperature = 1;
  const std::vector<int64_t> all = generate(request);
  ASSERT_EQ(all.size(), 50u);
  request.stop_tokens = {59, all[20]};
  const std::vector<int64_t> stopped = generate(request);
  ASSERT_LE(stopped.size(), 20u);
  EXPECT_TRUE(std::equal(stopped.begin(), stopped.end(), all.begin()));
  const int64_t next = all[stopped.size()];
  EXPECT_TRUE(next == 59 || next == all[20]);
  request.prompt = {};
  EXPECT_ERROR(generate(request), ExitCode::kBadConfig, "no token");
  for (const int64_t bad : {-1, 60}) {
    request.prompt = {1, bad};
    EXPECT_ERROR(generate(request), ExitCode::kBadConfig, "is not one of the model's 60");
  }
}

TEST(SamplerTest, APromptLongerThanTheContextIsRefused) {
  Config config;
  config.model.context = 10;
  config.sample.tokens = 1;
  config.sample.prompt = "123456789";  // and the token before it
  Sampler fits(config);
  config.sample.prompt = "1234567890";
  EXPECT_ERROR(Sampler{config}, ExitCode::kBadConfig,
               "the prompt \"1234567890\" has 11 tokens, and model.context is 10");
  config.sample.tokens = 0;
  Sampler unused(config);
}

}  // namespace
}  // namespace gpuctl::trainer
