#include "trainer/step/stepper.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <tuple>
#include <utility>

#include "trainer/tests/expect_error.h"
#include "trainer/tests/tensors.h"

namespace gpuctl::trainer {
namespace {

Config SmallConfig() {
  Config config;
  config.model = {2, 16, 4, 2, 24, 12, 257, 10000.0, 1e-5};
  config.train.batch = 8;
  config.train.micro_batch = 8;
  return config;
}

// On an accelerator there is one worker.
Placement On(int workers, at::ScalarType dtype = at::kFloat) {
  return {TestDevice(), dtype, TestDevice().is_cpu() ? workers : 1};
}

// Returns a batch with some masked targets, unequally over the rows.
Batch SomeBatch(const Config& config, uint64_t sub) {
  return MakeBatch(config.train.batch, config.model.context, /*packed=*/false,
                   [&](int64_t row, const WindowSlot& slot) {
                     int64_t scored = 0;
                     for (int64_t t = 0; t < config.model.context; ++t) {
                       const uint64_t bits = Random64(5, RandomStream::kBench, sub,
                                                      static_cast<uint64_t>(row * 1000 + t));
                       slot.inputs[t] = static_cast<int64_t>(bits % 257);
                       slot.targets[t] = t < row ? -1 : static_cast<int64_t>((bits >> 20) % 256);
                       scored += slot.targets[t] >= 0;
                     }
                     return scored;
                   });
}

bool Never() { return false; }

struct Outcome {
  GradientResult result;
  std::vector<at::Tensor> gradients;
};

Outcome OneStep(Config config, const Placement& placement, int64_t micro_batch) {
  config.train.micro_batch = micro_batch;
  Stepper stepper(config, placement, InitializeWeights(config.model, 3));
  Outcome outcome{stepper.Gradients(SomeBatch(config, 1), Never), {}};
  for (const at::Tensor& gradient : stepper.CurrentGradients()) {
    outcome.gradients.push_back(gradient.defined() ? gradient.clone() : gradient);
  }
  return outcome;
}

void ExpectSame(const Outcome& a, const Outcome& b, double tolerance) {
  EXPECT_NEAR(a.result.loss, b.result.loss, tolerance * b.result.loss);
  EXPECT_NEAR(a.result.norm, b.result.norm, tolerance * b.result.norm);
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    EXPECT_LT(RelativeDifference(a.gradients[i], b.gradients[i]), tolerance) << "parameter " << i;
  }
}

TEST(StepperTest, AccumulationEqualsTheLargeBatch) {
  const Outcome whole = OneStep(SmallConfig(), On(1), 8);
  for (const int64_t micro_batch : {1, 2, 3}) {
    ExpectSame(OneStep(SmallConfig(), On(1), micro_batch), whole, 2e-6);
  }
}

// LibTorch's allocator for the CPU, until the next allocation of `size` bytes or more.
class FailingAllocator : public c10::Allocator {
 public:
  FailingAllocator() : real_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, 1); }
  ~FailingAllocator() override { c10::SetCPUAllocator(real_, 1); }
  // LibTorch 1.13 calls the first one, LibTorch 2 the second.
  c10::DataPtr allocate(size_t size) const {
    if (size >= limit) {
      TORCH_CHECK(false, "DefaultCPUAllocator: can't allocate memory: you tried to allocate ", size,
                  " bytes.");
    }
    return real_->allocate(size);
  }
  c10::DataPtr allocate(size_t size) { return std::as_const(*this).allocate(size); }
  // LibTorch 2 has it as a virtual function, 1.13 has not.
  void copy_data(void* to, const void* from, size_t count) const { std::memcpy(to, from, count); }
  std::atomic<size_t> limit{~size_t{0}};

 private:
  c10::Allocator* real_;
};

TEST(StepperTest, WithoutMemoryTheMicroBatchIsHalvedAndTheStepIsTheSame) {
  if (!TestDevice().is_cpu()) GTEST_SKIP() << "the allocator that fails is the CPU's";
  const Outcome expected = OneStep(SmallConfig(), On(2), 1);
  FailingAllocator allocator;
  Config config = SmallConfig();
  config.train.micro_batch = 64;
  Stepper stepper(config, On(2), InitializeWeights(config.model, 3));
  EXPECT_EQ(stepper.micro_batch(), 4);  // the share of a worker
  // The logits of one window fit, those of two do not.
  allocator.limit = static_cast<size_t>(2 * config.model.context * config.model.vocab_size) * 4;
  const Batch batch = SomeBatch(config, 1);
  const GradientResult result = stepper.Gradients(batch, Never);
  EXPECT_EQ(stepper.micro_batch(), 1);
  EXPECT_EQ(result.loss, expected.result.loss);
  EXPECT_EQ(result.norm, expected.result.norm);
  for (size_t i = 0; i < expected.gradients.size(); ++i) {
    EXPECT_TRUE(at::equal(stepper.CurrentGradients()[i], expected.gradients[i])) << i;
  }
  allocator.limit = 100;
  EXPECT_THROW(stepper.Gradients(batch, Never), c10::Error);
  allocator.limit = ~size_t{0};
  EXPECT_EQ(stepper.Gradients(batch, Never).loss, expected.result.loss);
}

TEST(StepperTest, RecomputingChangesNoBit) {
  for (const auto& [dtype, freeze] :
       std::vector<std::pair<at::ScalarType, std::vector<std::string>>>{
           {at::kFloat, {}},
           {at::kBFloat16, {}},
           {at::kFloat, {"model.embed_tokens.weight", "model.layers.0.*"}}}) {
    Config config = SmallConfig();
    config.train.freeze = freeze;
    const Outcome kept = OneStep(config, On(2, dtype), 2);
    config.train.recompute = true;
    const Outcome again = OneStep(config, On(2, dtype), 2);
    EXPECT_EQ(again.result.loss, kept.result.loss);
    EXPECT_EQ(again.result.norm, kept.result.norm);
    for (size_t i = 0; i < kept.gradients.size(); ++i) {
      ASSERT_EQ(again.gradients[i].defined(), kept.gradients[i].defined()) << "parameter " << i;
      if (!kept.gradients[i].defined()) continue;
      EXPECT_TRUE(at::equal(again.gradients[i], kept.gradients[i])) << "parameter " << i;
    }
  }
}

TEST(StepperTest, WorkersTogetherEqualOneAlone) {
  const Outcome alone = OneStep(SmallConfig(), On(1), 8);
  for (const int workers : {2, 3, 8})
    ExpectSame(OneStep(SmallConfig(), On(workers), 2), alone, 2e-6);
}

TEST(StepperTest, LossIsTheMeanOverScoredTokens) {
  const Config config = SmallConfig();
  Stepper stepper(config, On(2), InitializeWeights(config.model, 3));
  const Batch batch = SomeBatch(config, 1);
  EXPECT_LT(batch.scored, batch.targets_bt.numel());
  const double loss = stepper.Gradients(batch, Never).loss;
  EXPECT_NEAR(loss, stepper.SummedLossOf(batch) / static_cast<double>(batch.scored), 1e-5);
  EXPECT_NEAR(loss, std::log(257.0), 0.1);
}

TEST(StepperTest, TwoRunsAreTheSameToTheLastBit) {
  const Config config = SmallConfig();
  std::vector<NamedTensors> ends;
  std::vector<std::vector<double>> losses(2);
  std::vector<std::unique_ptr<Stepper>> steppers;
  for (size_t run = 0; run < 2; ++run) {
    steppers.push_back(
        std::make_unique<Stepper>(config, On(3), InitializeWeights(config.model, 3)));
    for (int64_t t = 1; t <= 5; ++t) {
      losses[run].push_back(
          steppers[run]->Gradients(SomeBatch(config, static_cast<uint64_t>(t)), Never).loss);
      steppers[run]->Apply(1e-2, t);
    }
    ends.push_back(steppers[run]->Weights());
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_LT(losses[0].back(), losses[0].front());
  for (size_t i = 0; i < ends[0].size(); ++i) {
    EXPECT_TRUE(at::equal(ends[0][i].second, ends[1][i].second)) << ends[0][i].first;
  }
}

TEST(StepperTest, ClippingLimitsTheUpdateAndReportsTheFullNorm) {
  Config config = SmallConfig();
  config.optimizer.grad_clip = 1e-3;
  config.optimizer.beta1 = 0;
  Stepper clipped(config, On(2), InitializeWeights(config.model, 3));
  const GradientResult result = clipped.Gradients(SomeBatch(config, 1), Never);
  EXPECT_GT(result.norm, 0.1);
  clipped.Apply(1e-3, 1);
  double squares = 0;  // exp_avg is the clipped gradient when beta1 is 0
  for (const auto& [name, tensor] : clipped.OptimizerState()) {
    if (name.rfind("exp_avg.", 0) == 0) squares += tensor.pow(2).sum().item<double>();
  }
  EXPECT_NEAR(std::sqrt(squares), 1e-3, 1e-7);
}

TEST(StepperTest, StoppingLeavesTheWeightsAlone) {
  Config config = SmallConfig();
  config.train.micro_batch = 1;
  Stepper stepper(config, On(2), InitializeWeights(config.model, 3));
  const at::Tensor before = stepper.Weights()[0].second.clone();
  std::atomic<int> asked{0};
  EXPECT_FALSE(stepper.Gradients(SomeBatch(config, 1), [&] { return ++asked > 3; }).finished);
  EXPECT_TRUE(at::equal(stepper.Weights()[0].second, before));
  EXPECT_TRUE(stepper.Gradients(SomeBatch(config, 1), Never).finished);
}

// A team of several members has several shards; the gradients have the same bits.
TEST(StepperTest, MomentsIn8BitsAreThoseOfAnyNumberOfShards) {
  Config config = SmallConfig();
  config.model.d_model = 132;  // the slices of q, k and v are no whole blocks
  config.model.heads = 6;
  config.model.ffn = 90;
  config.optimizer.grad_clip = 0;
  config.optimizer.state = "int8";
  config.train.batch = 2;
  config.train.micro_batch = 1;
  std::vector<std::unique_ptr<Stepper>> steppers;
  for (const int threads : {1, 7}) {
    Placement placement = On(1);
    placement.threads = threads;
    steppers.push_back(
        std::make_unique<Stepper>(config, placement, InitializeWeights(config.model, 3)));
    for (int64_t t = 1; t <= 4; ++t) {
      steppers.back()->Gradients(SomeBatch(config, static_cast<uint64_t>(t)), Never);
      steppers.back()->Apply(1e-2, t);
    }
  }
  const NamedTensors a = steppers[0]->OptimizerState(), b = steppers[1]->OptimizerState();
  int coded = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(at::equal(a[i].second, b[i].second)) << a[i].first;
    coded += a[i].second.scalar_type() == at::kByte;
  }
  EXPECT_GT(coded, 2);
  for (size_t i = 0; i < steppers[0]->Weights().size(); ++i) {
    EXPECT_TRUE(at::equal(steppers[0]->Weights()[i].second, steppers[1]->Weights()[i].second)) << i;
  }
}

// The path an accelerator takes (bf16 weights, fp32 masters, clipping by tensors) also runs here.
TEST(StepperTest, Bf16FollowsFp32) {
  const Config config = SmallConfig();
  Stepper exact(config, On(1), InitializeWeights(config.model, 3));
  Stepper half(config, On(2, at::kBFloat16), InitializeWeights(config.model, 3));
  double exact_loss = 0, half_loss = 0;
  for (int64_t t = 1; t <= 10; ++t) {
    const Batch batch = SomeBatch(config, 1);
    exact_loss = exact.Gradients(batch, Never).loss;
    exact.Apply(1e-2, t);
    half_loss = half.Gradients(batch, Never).loss;
    half.Apply(1e-2, t);
  }
  EXPECT_LT(exact_loss, 5.2);
  EXPECT_NEAR(half_loss, exact_loss, 0.02 * exact_loss);
  EXPECT_EQ(half.Weights()[0].second.scalar_type(), at::kBFloat16);
}

TEST(StepperTest, GradientsIn16BitsAreFp32OnlyWhereTheyAdd) {
  Config config = SmallConfig();
  const auto dtype_of = [&](int workers, int64_t micro_batch) {
    Stepper stepper(config, On(workers, at::kBFloat16), InitializeWeights(config.model, 3));
    stepper.SetMicroBatch(micro_batch);
    stepper.Gradients(SomeBatch(config, 1), Never);
    return stepper.CurrentGradients()[0].scalar_type();
  };
  EXPECT_EQ(dtype_of(1, 8), at::kBFloat16);
  EXPECT_EQ(dtype_of(1, 4), at::kFloat);
  if (TestDevice().is_cpu()) {
    EXPECT_EQ(dtype_of(2, 8), at::kFloat);
  }
  // Where nothing is added, the update is that of the same gradients in fp32.
  config.optimizer.weight_decay = 0;
  config.optimizer.grad_clip = 0.01;
  Stepper stepper(config, On(1, at::kBFloat16), InitializeWeights(config.model, 3));
  const GradientResult result = stepper.Gradients(SomeBatch(config, 1), Never);
  NamedTensors gradients;
  AppendSlices(ParameterSpecs(config.model), stepper.CurrentGradients(), "", &gradients);
  double squares = 0;
  std::map<std::string, at::Tensor> wide, masters;
  for (const auto& [name, gradient] : gradients) {
    wide[name] = gradient.to(at::kFloat);
    squares += wide[name].to(at::kCPU, at::kDouble).pow(2).sum().item<double>();
  }
  EXPECT_NEAR(result.norm / std::sqrt(squares), 1, 1e-5);
  for (const auto& [name, tensor] : stepper.OptimizerState()) {
    if (name.rfind("master.", 0) == 0) masters[name.substr(7)] = tensor.clone();
  }
  stepper.Apply(1e-3, 1);
  const OptimizerConfig& c = config.optimizer;
  const AdamwStep step = {1e-3, c.beta1, c.beta2, c.eps, 0.0, 1};
  const at::Tensor clip =
      at::full({}, 0.01 / (std::sqrt(squares) + 1e-6), wide.begin()->second.options());
  for (const auto& [name, tensor] : stepper.OptimizerState()) {
    if (name.rfind("master.", 0) != 0) continue;
    const std::string of = name.substr(7);
    const at::Tensor zeros = at::zeros_like(wide[of]);
    AdamwUpdate(step, masters[of], wide[of], zeros, zeros.clone(), clip);
    EXPECT_LT((tensor - masters[of]).abs().max().item<float>(), 1e-6) << of;
  }
  for (const auto& [name, tensor] : stepper.OptimizerState()) {
    if (name.rfind("exp_avg.", 0) != 0) continue;
    EXPECT_LT(RelativeDifference(tensor, wide[name.substr(8)] * (1 - c.beta1)), 1e-5) << name;
  }
}

TEST(StepperTest, SavedStateContinuesExactlyInBothWidths) {
  for (const auto& [dtype, state, workers] :
       std::vector<std::tuple<at::ScalarType, std::string, int>>{{at::kFloat, "fp32", 2},
                                                                 {at::kBFloat16, "fp32", 2},
                                                                 {at::kBFloat16, "fp32", 1},
                                                                 {at::kFloat, "int8", 2},
                                                                 {at::kBFloat16, "int8", 2},
                                                                 {at::kBFloat16, "int8", 1}}) {
    Config config = SmallConfig();
    config.optimizer.state = state;
    const auto copy = [](const NamedTensors& live) {
      std::map<std::string, at::Tensor> copied;
      for (const auto& [name, tensor] : live) copied[name] = tensor.clone();
      return copied;
    };
    Stepper first(config, On(workers, dtype), InitializeWeights(config.model, 3));
    first.Gradients(SomeBatch(config, 1), Never);
    first.Apply(1e-2, 1);
    Stepper second(config, On(workers, dtype), InitializeWeights(config.model, 4));
    second.Load(copy(first.Weights()), copy(first.OptimizerState()), "test");
    for (Stepper* stepper : {&first, &second}) {
      stepper->Gradients(SomeBatch(config, 2), Never);
      stepper->Apply(1e-2, 2);
    }
    const NamedTensors a = first.OptimizerState(), b = second.OptimizerState();
    EXPECT_EQ(a[0].second.scalar_type(), state == "int8" ? at::kByte : at::kFloat);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i].second, b[i].second));
    EXPECT_TRUE(at::equal(first.Weights()[3].second, second.Weights()[3].second));
  }
}

// Returns copies of the tensors by name.
std::map<std::string, at::Tensor> CopyOf(const NamedTensors& live) {
  std::map<std::string, at::Tensor> copied;
  for (const auto& [name, tensor] : live) copied[name] = tensor.clone();
  return copied;
}

// Compares a step with frozen weights with the same step without.
void ExpectFrozenStep(at::ScalarType dtype, const std::vector<std::string>& patterns) {
  Config config = SmallConfig();
  const Outcome whole = OneStep(config, On(2, dtype), 8);
  config.train.freeze = patterns;
  Stepper stepper(config, On(2, dtype), InitializeWeights(config.model, 3));
  const auto before = CopyOf(stepper.Weights());
  const GradientResult result = stepper.Gradients(SomeBatch(config, 1), Never);
  EXPECT_NEAR(result.loss, whole.result.loss, 1e-6 * whole.result.loss);
  EXPECT_LT(result.norm, whole.result.norm);
  const std::vector<at::Tensor> gradients = stepper.CurrentGradients();
  const std::vector<ParameterSpec> specs = ParameterSpecs(config.model);
  const std::vector<bool> frozen = FrozenParameters(specs, patterns);
  double squares = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    ASSERT_EQ(gradients[i].defined(), !frozen[i]) << specs[i].slices[0].name;
    if (frozen[i]) continue;
    // A frozen head has sums in another order (linear/frozen_head.h).
    if (frozen[0]) {
      EXPECT_LT(RelativeDifference(gradients[i], whole.gradients[i]), 1e-5)
          << specs[i].slices[0].name;
    } else {
      EXPECT_TRUE(at::equal(gradients[i], whole.gradients[i])) << specs[i].slices[0].name;
    }
    squares += gradients[i].pow(2).sum().item<double>();
  }
  EXPECT_NEAR(result.norm, std::sqrt(squares), 1e-5 * result.norm);
  stepper.Apply(1e-2, 1);
  const auto after = CopyOf(stepper.Weights()), state = CopyOf(stepper.OptimizerState());
  for (size_t i = 0; i < specs.size(); ++i) {
    for (const RowSlice& slice : specs[i].slices) {
      EXPECT_EQ(at::equal(before.at(slice.name), after.at(slice.name)), frozen[i]) << slice.name;
      for (const char* kind : {"exp_avg.", "exp_avg_sq.", "master."}) {
        const bool there = !frozen[i] && (kind[0] == 'e' || dtype == at::kBFloat16);
        EXPECT_EQ(state.count(kind + slice.name) == 1, there) << kind << slice.name;
      }
    }
  }
}

TEST(StepperTest, FrozenWeightsHaveNoGradientsAndNoMomentsAndStay) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    ExpectFrozenStep(dtype,
                     {"model.embed_tokens.weight", "model.layers.0.*", "*.1.mlp.down_proj.weight"});
    ExpectFrozenStep(dtype, {"model.norm.weight", "*layernorm*"});
  }
}

TEST(StepperTest, AFrozenRunContinuesExactlyInBothWidths) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    Config config = SmallConfig();
    config.train.freeze = {"*self_attn*"};
    Stepper first(config, On(2, dtype), InitializeWeights(config.model, 3));
    first.Gradients(SomeBatch(config, 1), Never);
    first.Apply(1e-2, 1);
    Stepper second(config, On(2, dtype), InitializeWeights(config.model, 4));
    second.Load(CopyOf(first.Weights()), CopyOf(first.OptimizerState()), "test");
    for (Stepper* stepper : {&first, &second}) {
      stepper->Gradients(SomeBatch(config, 2), Never);
      stepper->Apply(1e-2, 2);
    }
    const auto a = CopyOf(first.Weights()), b = CopyOf(second.Weights());
    for (const auto& [name, tensor] : a) EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
  }
}

TEST(StepperTest, PatternsThatFreezeNothingOrAPartAreRefused) {
  const ModelConfig model = SmallConfig().model;
  const std::vector<ParameterSpec> specs = ParameterSpecs(model);
  const auto freeze = [&](const std::vector<std::string>& patterns) {
    return FrozenParameters(specs, patterns);
  };
  EXPECT_EQ(freeze({}), std::vector<bool>(specs.size(), false));
  EXPECT_ERROR(freeze({"*layers.7.*"}), ExitCode::kBadConfig, "\"*layers.7.*\" matches no weight");
  EXPECT_ERROR(freeze({"*q_proj*"}), ExitCode::kBadConfig, "a part of model.layers.0.self_attn.q");
  EXPECT_ERROR(freeze({"*"}), ExitCode::kBadConfig, "nothing to train");
  EXPECT_NO_THROW(freeze({"*q_proj*", "*k_proj*", "*v_proj*"}));
  EXPECT_EQ(FlopsPerToken(model) - FlopsPerToken(model, {"model.embed*"}), 2.0 * 257 * 16);
}

// Every part of the network that only some families have, on the path of an accelerator.
TEST(StepperTest, Bf16FollowsFp32WithEveryPart) {
  Config config = SmallConfig();
  ModelConfig& m = config.model;
  m.qkv_bias = m.out_bias = m.mlp_bias = m.qk_norm = m.gelu = m.norm_offset = true;
  m.sandwich_norms = m.scaled_embedding = true;
  m.tied_head = false;
  m.head_size = 6;
  m.window = 3;
  m.windowed = {true, false};
  m.local_rope_theta = 100;
  Stepper exact(config, On(2), InitializeWeights(m, 3));
  Stepper half(config, On(2, at::kBFloat16), InitializeWeights(m, 3));
  double exact_loss = 0, half_loss = 0;
  for (int64_t t = 1; t <= 10; ++t) {
    const Batch batch = SomeBatch(config, 1);
    exact_loss = exact.Gradients(batch, Never).loss;
    exact.Apply(1e-2, t);
    half_loss = half.Gradients(batch, Never).loss;
    half.Apply(1e-2, t);
  }
  EXPECT_LT(exact_loss, 5.2);
  EXPECT_NEAR(half_loss, exact_loss, 0.02 * exact_loss);
}

TEST(TeamTest, RunsEveryMemberAndPassesOnTheFirstFailure) {
  Team team(4);
  std::vector<int> calls(4);
  for (int round = 0; round < 100; ++round) {
    team.Run([&](int member) { ++calls[static_cast<size_t>(member)]; });
  }
  EXPECT_EQ(calls, std::vector<int>(4, 100));
  const auto fail = [](int member) {
    if (member >= 2) throw std::runtime_error("member " + std::to_string(member));
  };
  try {
    team.Run(fail);
    FAIL() << "no exception";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "member 2");
  }
  team.Run([&](int member) { ++calls[static_cast<size_t>(member)]; });
  EXPECT_EQ(calls, std::vector<int>(4, 101));
}

TEST(AdamwTest, LoopAndTensorVersionsAgree) {
  const at::Tensor start = RandomTensor({1000}, at::kFloat, 20);
  at::Tensor p = start.clone(), m = at::zeros({1000}), v = at::zeros({1000});
  at::Tensor p64 = start.to(at::kDouble), m64 = m.to(at::kDouble), v64 = v.to(at::kDouble);
  for (int64_t t = 1; t <= 20; ++t) {
    const at::Tensor g = RandomTensor({1000}, at::kFloat, 30 + static_cast<uint64_t>(t));
    const AdamwStep step = {1e-2, 0.9, 0.95, 1e-8, 0.1, t};
    AdamwUpdateCpu(step, 1000, 0.5f, g.data_ptr<float>(), p.data_ptr<float>(), m.data_ptr<float>(),
                   v.data_ptr<float>());
    AdamwUpdate(step, p64, g.to(at::kDouble), m64, v64, at::full({}, 0.5, at::kDouble));
  }
  EXPECT_LT(RelativeDifference(p, p64), 1e-6);
  EXPECT_LT(RelativeDifference(m, m64), 1e-6);
  EXPECT_LT(RelativeDifference(v, v64), 1e-6);
}

TEST(AdamwTest, SumsAreRightForEveryLength) {
  for (const int64_t count : {0, 1, 15, 16, 17, 4095, 4096, 4097, 10000}) {
    const at::Tensor x = RandomTensor({count}, at::kFloat, 40);
    at::Tensor y = RandomTensor({count}, at::kFloat, 41);
    const at::Tensor sum = x + y;
    AddInto(count, x.data_ptr<float>(), y.data_ptr<float>());
    EXPECT_TRUE(at::equal(y, sum));
    const double expected = sum.to(at::kDouble).pow(2).sum().item<double>();
    EXPECT_NEAR(SumOfSquares(count, y.data_ptr<float>()), expected, 1e-5 * expected);
  }
}

}  // namespace
}  // namespace gpuctl::trainer
