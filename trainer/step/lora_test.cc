#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trainer/linear/dropout.h"
#include "trainer/lora/adapter_files.h"
#include "trainer/lora/adapters.h"
#include "trainer/lora/layout.h"
#include "trainer/step/stepper.h"
#include "trainer/tests/expect_error.h"
#include "trainer/tests/tensors.h"

namespace gpuctl::trainer {
namespace {

Config AdaptedConfig(const std::vector<std::string>& targets) {
  Config config;
  config.model = {2, 16, 4, 2, 24, 12, 257, 10000.0, 1e-5};
  config.train.batch = 6;
  config.train.micro_batch = 6;
  config.lora.rank = 3;
  config.lora.targets = targets;
  return config;
}

AdapterLayout LayoutOf(Config config, const std::vector<std::string>& saved = {}) {
  config.lora.modules_to_save = saved;
  return MakeAdapterLayout(config);
}

std::vector<std::string> TrainedNames(const AdapterLayout& layout) {
  std::vector<std::string> names;
  for (size_t i = 0; i < layout.specs.size(); ++i) {
    if (!layout.frozen[i]) names.push_back(layout.specs[i].slices[0].name);
  }
  return names;
}

TEST(LoraLayoutTest, NamesMeanModulesAsInPeft) {
  const auto count = [](const std::vector<std::string>& targets) {
    size_t modules = 0;
    for (const AdaptedMatrix& matrix : LayoutOf(AdaptedConfig(targets)).matrices) {
      modules += matrix.modules.size();
    }
    return modules;
  };
  EXPECT_EQ(count({"all-linear"}), 14u);
  EXPECT_EQ(count({"q_proj"}), 2u);
  EXPECT_EQ(count({"q_proj", "v_proj", "q_proj"}), 4u);
  EXPECT_EQ(count({"self_attn.*"}), 8u);
  EXPECT_EQ(count({"model.layers.1.*"}), 7u);
  EXPECT_EQ(count({"layers.1.mlp.up_proj"}), 1u);
  EXPECT_EQ(count({"*"}), 14u);
  for (const char* name : {"proj", "lm_head", "embed_tokens", "", "q_proj.weight",
                           "input_layernorm", "model.layers.2.*"}) {
    EXPECT_ERROR(LayoutOf(AdaptedConfig({"v_proj", name})), ExitCode::kBadConfig,
                 std::string("lora.targets \"") + name + "\" means no module");
  }
  try {
    LayoutOf(AdaptedConfig({"qproj"}));
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean \"q_proj\"?"), std::string::npos);
    EXPECT_NE(error.hint().find("q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj"),
              std::string::npos);
  }
}

TEST(LoraLayoutTest, ModulesToSaveAreTrainedInFull) {
  const Config config = AdaptedConfig({"o_proj"});
  EXPECT_EQ(TrainedNames(LayoutOf(config)).size(), 4u);
  EXPECT_EQ(TrainedNames(LayoutOf(config, {"model.norm"}))[0], "model.norm.weight");
  EXPECT_EQ(TrainedNames(LayoutOf(config, {"*norm"})).size(), 4u + 5u);
  for (const char* name : {"embed_tokens", "lm_head"}) {
    const AdapterLayout layout = LayoutOf(config, {name});
    EXPECT_TRUE(layout.SavesTiedHead());
    EXPECT_EQ(TrainedNames(layout)[0], "model.embed_tokens.weight");
    EXPECT_EQ(PeftNames(layout).modules_to_save,
              (std::vector<std::string>{"embed_tokens", "lm_head"}));
  }
  EXPECT_EQ(TrainedNames(LayoutOf(config, {"q_proj", "k_proj", "v_proj"})).size(), 4u + 2u);
  EXPECT_ERROR(LayoutOf(config, {"q_proj"}), ExitCode::kBadConfig, "names a part of");
  EXPECT_ERROR(LayoutOf(config, {"o_proj"}), ExitCode::kBadConfig, "both name");
  EXPECT_ERROR(LayoutOf(config, {"mlp"}), ExitCode::kBadConfig, "lora.modules_to_save \"mlp\"");
}

TEST(LoraLayoutTest, WrittenNamesMeanTheSameModules) {
  const auto names = [](const std::vector<std::string>& targets,
                        const std::vector<std::string>& saved) {
    const LoraConfig lora = PeftNames(LayoutOf(AdaptedConfig(targets), saved));
    return std::make_pair(lora.targets, lora.modules_to_save);
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names({"self_attn.q_proj", "*down*"}, {}),
            (std::pair<Names, Names>{{"q_proj", "down_proj"}, {}}));
  EXPECT_EQ(names({"layers.1.mlp.up_proj"}, {"*.input_layernorm"}),
            (std::pair<Names, Names>{{"model.layers.1.mlp.up_proj"}, {"input_layernorm"}}));
  // PEFT compares the end of a name, and "norm" would be the end of all norms.
  EXPECT_EQ(names({"q_proj"}, {"norm"}), (std::pair<Names, Names>{{"q_proj"}, {"model.norm"}}));
}

TEST(LoraAdaptersTest, InitialValuesAreThoseOfPeft) {
  Config config = AdaptedConfig({"all-linear"});
  config.lora.dora = true;
  const AdapterLayout layout = MakeAdapterLayout(config);
  std::vector<at::Tensor> flat = InitializeWeights(config.model, 3);
  AppendInitialAdapters(layout, 7, &flat);
  ASSERT_EQ(flat.size(), layout.specs.size());
  for (size_t i = layout.model_specs; i < flat.size(); i += 3) {
    const AdaptedMatrix& matrix = layout.matrices[(i - layout.model_specs) / 3];
    EXPECT_EQ(flat[i].sizes(), at::IntArrayRef(layout.specs[i].shape));
    const double bound = 1 / std::sqrt(static_cast<double>(matrix.inputs));
    EXPECT_LE(flat[i].abs().max().item<double>(), bound);
    EXPECT_GT(flat[i].abs().max().item<double>(), 0.9 * bound);
    EXPECT_NEAR(flat[i].pow(2).mean().item<double>(), bound * bound / 3, 0.1 * bound * bound);
    EXPECT_EQ(flat[i + 1].abs().max().item<double>(), 0);
    EXPECT_LT(RelativeDifference(flat[i + 2], flat[matrix.spec].to(at::kDouble).norm(2, 1)), 1e-6);
  }
  // The A of a module depends on seed and module alone.
  const AdapterLayout few = MakeAdapterLayout(AdaptedConfig({"layers.1.self_attn.v_proj"}));
  std::vector<at::Tensor> others = InitializeWeights(config.model, 3), more = others;
  AppendInitialAdapters(few, 7, &others);
  AppendInitialAdapters(few, 8, &more);
  const at::Tensor& all = flat[layout.model_specs + 3 * 4];
  EXPECT_TRUE(at::equal(others[few.model_specs], all.narrow(0, 2 * 3, 3)));
  EXPECT_FALSE(at::equal(others[few.model_specs], more[few.model_specs]));
}

TEST(DropoutTest, AWindowIsTheSameInEveryBatch) {
  const c10::Device device = TestDevice();
  const DropoutDraw draw = {0.3, 0xFEDCBA9876543210, (int64_t{1} << 40) + 5, 7};
  const DropoutDraw next = {draw.share, draw.seed, draw.first_window + 1, 7};
  for (const auto factors : {DropoutFactors, DropoutFactorsByGenerator}) {
    for (const int64_t columns : {1, 5, 8, 33}) {
      const at::Tensor whole = factors(draw, 3, 28, columns, device);
      EXPECT_TRUE(at::equal(whole, factors(draw, 3, 28, columns, device)));
      EXPECT_TRUE(at::equal(whole.narrow(0, 7, 7), factors(next, 3, 7, columns, device)));
    }
    const at::Tensor many = factors(draw, 3, 700, 100, device);
    EXPECT_NEAR(many.eq(0).to(at::kDouble).mean().item<double>(), 0.3, 0.01);
    EXPECT_NEAR(many.mean().item<double>(), 1, 0.01);
    EXPECT_FALSE(at::equal(many, factors(draw, 4, 700, 100, device)));
    EXPECT_FALSE(at::equal(many, factors(next, 3, 700, 100, device)));
  }
}

// On an accelerator there is one worker.
Placement With(int workers, at::ScalarType dtype = at::kFloat) {
  return {TestDevice(), dtype, TestDevice().is_cpu() ? workers : 1};
}

Batch AdaptedBatch(const Config& config, int64_t number) {
  Batch batch = MakeBatch(config.train.batch, config.model.context, /*packed=*/false,
                          [&](int64_t row, const WindowSlot& slot) {
                            for (int64_t t = 0; t < config.model.context; ++t) {
                              const auto bits =
                                  Random64(4, RandomStream::kBench, static_cast<uint64_t>(number),
                                           static_cast<uint64_t>(row * 100 + t));
                              slot.inputs[t] = static_cast<int64_t>(bits % 257);
                              slot.targets[t] = static_cast<int64_t>((bits >> 20) % 256);
                            }
                            return config.model.context;
                          });
  batch.first_window = number * config.train.batch;
  return batch;
}

std::vector<at::Tensor> StartOf(const Config& config) {
  std::vector<at::Tensor> flat = InitializeWeights(config.model, 3);
  AppendInitialAdapters(MakeAdapterLayout(config), 7, &flat);
  return flat;
}

std::map<std::string, at::Tensor> ByName(const NamedTensors& live) {
  std::map<std::string, at::Tensor> copied;
  for (const auto& [name, tensor] : live) copied[name] = tensor.clone();
  return copied;
}

Config HardConfig() {
  Config config = AdaptedConfig({"all-linear"});
  config.lora.dora = true;
  config.lora.dropout = 0.25;
  config.lora.modules_to_save = {"model.norm"};
  return config;
}

const auto kGoOn = [] { return false; };

TEST(LoraStepTest, NothingChangesAtFirstAndTheModelStaysAsItIs) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    Config config = AdaptedConfig({"all-linear"});
    config.lora.dora = true;
    const std::vector<at::Tensor> flat = StartOf(config);
    Stepper stepper(config, With(2, dtype), flat);
    Config plain = config;
    plain.lora = {};
    Stepper model(plain, With(2, dtype), InitializeWeights(config.model, 3));
    const Batch batch = AdaptedBatch(config, 1);
    // With B of zeros every factor of DoRA is exactly 1.
    EXPECT_EQ(stepper.SummedLossOf(batch), model.SummedLossOf(batch));
    const auto before = stepper.Gradients(batch, kGoOn).loss;
    stepper.Apply(1e-2, 1);
    const auto after = stepper.Gradients(batch, kGoOn).loss;
    EXPECT_LT(after, before);
    const std::vector<at::Tensor> fresh = StartOf(config);
    for (size_t i = 0; i < stepper.layout().model_specs; ++i) {
      EXPECT_TRUE(at::equal(flat[i], fresh[i])) << i;
    }
    for (const auto& [name, tensor] : stepper.Weights()) {
      EXPECT_EQ(name.rfind("base_model.model.model.layers.", 0), 0u) << name;
      EXPECT_NE(name.find(".lora_"), std::string::npos) << name;
      EXPECT_EQ(tensor.scalar_type(), at::kFloat) << name;
    }
    for (const auto& [name, tensor] : stepper.OptimizerState()) {
      EXPECT_EQ(name.rfind("exp_avg", 0), 0u) << name;
      EXPECT_NE(name.find(".lora_"), std::string::npos) << name;
    }
  }
}

TEST(LoraStepTest, DropoutDependsOnTheWindowAlone) {
  const auto gradients = [](int64_t micro_batch, int workers, int64_t number) {
    Config config = HardConfig();
    config.train.micro_batch = micro_batch;
    Stepper stepper(config, With(workers), StartOf(config));
    Batch batch = AdaptedBatch(config, 1);
    batch.first_window = number;
    stepper.Gradients(batch, kGoOn);
    std::vector<at::Tensor> flat;
    for (const at::Tensor& gradient : stepper.CurrentGradients()) {
      if (gradient.defined()) flat.push_back(gradient.flatten().clone());
    }
    return at::cat(flat);
  };
  const at::Tensor whole = gradients(6, 1, 6);
  EXPECT_LT(RelativeDifference(gradients(1, 1, 6), whole), 1e-5);
  EXPECT_LT(RelativeDifference(gradients(2, 3, 6), whole), 1e-5);
  EXPECT_TRUE(at::equal(gradients(6, 1, 6), whole));
  EXPECT_GT(RelativeDifference(gradients(6, 1, 12), whole), 1e-2);
}

TEST(LoraStepTest, SavedStateContinuesExactlyInBothWidths) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    Config config = HardConfig();
    config.lora.modules_to_save = {"embed_tokens"};
    Stepper first(config, With(2, dtype), StartOf(config));
    first.Gradients(AdaptedBatch(config, 1), kGoOn);
    first.Apply(1e-2, 1);
    Stepper second(config, With(2, dtype), StartOf(config));
    second.Load(ByName(first.Weights()), ByName(first.OptimizerState()), "test");
    for (Stepper* stepper : {&first, &second}) {
      stepper->Gradients(AdaptedBatch(config, 2), kGoOn);
      stepper->Apply(1e-2, 2);
    }
    const auto a = ByName(first.Weights()), b = ByName(second.Weights());
    EXPECT_EQ(a.count("base_model.model.lm_head.weight"), 1u);
    for (const auto& [name, tensor] : a) EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
    const auto c = ByName(first.OptimizerState()), d = ByName(second.OptimizerState());
    for (const auto& [name, tensor] : c) EXPECT_TRUE(at::equal(tensor, d.at(name))) << name;
  }
}

TEST(LoraStepTest, RecomputingChangesNoBitOfDropout) {
  for (const bool dora : {false, true}) {
    std::vector<std::vector<at::Tensor>> gradients;
    for (const bool recompute : {false, true}) {
      Config config = HardConfig();
      config.lora.dora = dora;
      config.lora.dropout = 0.3;
      config.train.recompute = recompute;
      Stepper stepper(config, With(2), StartOf(config));
      stepper.Gradients(AdaptedBatch(config, 1), kGoOn);
      stepper.Apply(1e-2, 1);
      stepper.Gradients(AdaptedBatch(config, 2), kGoOn);
      gradients.push_back(stepper.CurrentGradients());
    }
    for (size_t i = 0; i < gradients[0].size(); ++i) {
      ASSERT_EQ(gradients[0][i].defined(), gradients[1][i].defined());
      if (!gradients[0][i].defined()) continue;
      EXPECT_TRUE(at::equal(gradients[0][i], gradients[1][i])) << "parameter " << i;
    }
  }
}

TEST(LoraStepTest, AdaptersDecayAndNormsDoNot) {
  Config config = HardConfig();
  config.optimizer.weight_decay = 0.5;
  std::vector<at::Tensor> flat = StartOf(config);
  Stepper stepper(config, With(1), flat);
  Batch batch = AdaptedBatch(config, 1);
  batch.targets_bt.fill_(-1);  // no gradient
  batch.scored = 0;
  stepper.Gradients(batch, kGoOn);
  stepper.Apply(0.1, 1);
  for (const auto& [name, tensor] : stepper.Weights()) {
    const bool norm = name.find("norm") != std::string::npos;
    if (norm) {
      EXPECT_TRUE(at::equal(tensor, at::ones_like(tensor))) << name;
    }
  }
  const size_t a = stepper.layout().model_specs;
  EXPECT_LT(RelativeDifference(stepper.Weights()[1].second, flat[a].narrow(0, 0, 3) * 0.95), 1e-6);
}

TEST(LoraStepTest, Bf16FollowsFp32) {
  for (const bool dora : {false, true}) {
    Config config = AdaptedConfig({"all-linear"});
    config.lora.dora = dora;
    Stepper exact(config, With(2), StartOf(config));
    Stepper half(config, With(1, at::kBFloat16), StartOf(config));
    for (int64_t t = 1; t <= 4; ++t) {
      const double expected = exact.Gradients(AdaptedBatch(config, t), kGoOn).loss;
      EXPECT_NEAR(half.Gradients(AdaptedBatch(config, t), kGoOn).loss, expected, 0.02 * expected);
      exact.Apply(1e-2, t);
      half.Apply(1e-2, t);
    }
  }
}

TEST(LoraStepTest, AdaptersCostSixOperationsAWeightAndTheModelFour) {
  Config config = AdaptedConfig({"q_proj"});
  Config plain = config;
  plain.lora = {};
  const double frozen = 2.0 * static_cast<double>(CountParameters(config.model));
  EXPECT_EQ(TrainingFlopsPerToken(config),
            TrainingFlopsPerToken(plain) - frozen + 6.0 * 2 * 3 * (16 + 16));
}

TEST(LoraStepTest, TokensWithoutATargetCostNoHead) {
  Config config = AdaptedConfig({"q_proj"});
  for (const bool tied : {false, true}) {
    config.model.tied_head = tied;
    const double matrix = static_cast<double>(config.model.vocab_size * config.model.d_model);
    for (const bool full : {false, true}) {
      Config tuned = config;
      if (full) tuned.lora = {};
      const double one = TrainingFlopsPerToken(tuned);
      EXPECT_DOUBLE_EQ(TrainingFlops(tuned, 10, 10), 10 * one);
      EXPECT_DOUBLE_EQ(TrainingFlops(tuned, 10, 3), 10 * one - 7 * (full ? 6 : 4) * matrix);
    }
  }
}

}  // namespace
}  // namespace gpuctl::trainer
