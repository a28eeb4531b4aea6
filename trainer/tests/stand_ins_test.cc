// The routes that need operators of LibTorch 2: with an older one, stand-ins take their place.

#include "trainer/tests/stand_ins.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "trainer/base/files.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/linear/lora_linear.h"
#include "trainer/model/dispatch.h"
#include "trainer/model/functions.h"
#include "trainer/model/transfer.h"
#include "trainer/optimizer/adamw.h"
#include "trainer/step/device.h"
#include "trainer/step/memory.h"
#include "trainer/step/side_stream.h"
#include "trainer/step/stepper.h"
#include "trainer/tests/expect_error.h"
#include "trainer/tests/temp_dir.h"
#include "trainer/tests/tensors.h"
#include "trainer/train/schedule.h"
#include "trainer/train/trainer.h"

namespace gpuctl::trainer {
namespace {

#if TORCH_VERSION_MAJOR < 2

// Takes the routes for accelerators while it lives.
struct DeviceRoutes {
  DeviceRoutes() { TakeDeviceRoutesOnCpu(true); }
  ~DeviceRoutes() { TakeDeviceRoutesOnCpu(false); }
};

TEST(StandInsTest, FusedAttentionSharesKeysAndHidesOtherDocuments) {
  ASSERT_TRUE(HasFusedAttention());
  constexpr int64_t kTokens = 9;
  const at::Tensor starts = at::tensor({0, 0, 0, 3, 3, 5, 5, 5, 5}, at::kLong).view({1, kTokens});
  for (const int64_t kv_heads : {1, 2, 4}) {
    const at::Tensor q = RandomTensor({1, 4, kTokens, 6}, at::kDouble, 1).requires_grad_(true);
    const at::Tensor k = RandomTensor({1, kv_heads, kTokens, 6}, at::kDouble, 2);
    const at::Tensor v = RandomTensor({1, kv_heads, kTokens, 6}, at::kDouble, 3);
    const int calls = Calls().attention;
    const at::Tensor plain = FusedCausalAttention(q, k, v, 0, {});
    const at::Tensor packed = FusedCausalAttention(q, k, v, 0, starts);
    const at::Tensor near = FusedCausalAttention(q, k, v, 2, starts);
    EXPECT_EQ(Calls().attention, calls + 3);
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
    // In bf16 keys are shared, not copied; the stand-in sees to it.
    const auto narrow = [](const at::Tensor& x) { return x.detach().to(at::kBFloat16); };
    EXPECT_LT(RelativeDifference(FusedCausalAttention(narrow(q), narrow(k), narrow(v), 0, {}),
                                 plain.detach()),
              1e-2);
  }
}

// A model of a family with shared keys, and windows in one layer.
Config WindowedConfig() {
  Config config;
  config.model = {2, 32, 4, 2, 24, 12, 257, 10000.0, 1e-5};
  config.model.window = 3;
  config.model.windowed = {true, false};
  config.train.batch = 6;
  config.train.micro_batch = 4;
  return config;
}

Placement InHalf(at::ScalarType dtype) { return {c10::Device(c10::kCPU), dtype, 1}; }

// Returns random tokens. With `packed`, windows have documents of 1, 2, … places.
Batch RandomWindows(const Config& config, bool packed) {
  return MakeBatch(
      config.train.batch, config.model.context, packed, [&](int64_t row, const WindowSlot& slot) {
        int64_t scored = 0, begin = 0, size = row % 3 + 1;
        for (int64_t t = 0; t < config.model.context; ++t) {
          const uint64_t bits =
              Random64(6, RandomStream::kBench, 1, static_cast<uint64_t>(row * 1000 + t));
          slot.inputs[t] = static_cast<int64_t>(bits % 257);
          slot.targets[t] = t < row ? -1 : static_cast<int64_t>((bits >> 20) % 256);
          scored += slot.targets[t] >= 0;
          if (!packed) continue;
          if (t == begin + size) {
            begin = t;
            ++size;
          }
          slot.starts[t] = begin;
        }
        return scored;
      });
}

bool NeverStops() { return false; }

struct StepOutcome {
  GradientResult result;
  std::vector<at::Tensor> gradients;
  double evaluated = 0;
};

StepOutcome StepOf(const Config& config, bool packed) {
  Stepper stepper(config, InHalf(at::kBFloat16), InitializeWeights(config.model, 3));
  const Batch batch = RandomWindows(config, packed);
  StepOutcome outcome{stepper.Gradients(batch, NeverStops), {}, 0};
  for (const at::Tensor& gradient : stepper.CurrentGradients()) {
    outcome.gradients.push_back(gradient.clone());
  }
  stepper.Apply(1e-3, 1);
  outcome.evaluated = stepper.SummedLossOf(batch);
  return outcome;
}

TEST(StandInsTest, AStepByFlashAttentionEqualsThePlainOne) {
  for (const bool packed : {false, true}) {
    Config config = WindowedConfig();
    const StepOutcome plain = StepOf(config, packed);
    for (const bool recompute : {false, true}) {
      config.train.recompute = recompute;
      const DeviceRoutes routes;
      const StandInCalls before = Calls();
      const StepOutcome flash = StepOf(config, packed);
      // Two micro-batches; without documents only the layer with a window needs it.
      const int layers = packed ? 2 : 1;
      EXPECT_EQ(Calls().flash_backward - before.flash_backward, 2 * layers);
      EXPECT_EQ(Calls().flash - before.flash, (recompute ? 6 : 4) * layers);
      EXPECT_EQ(Calls().attention - before.attention, packed ? 0 : (recompute ? 6 : 4));
      EXPECT_NEAR(flash.result.loss, plain.result.loss, 2e-3);
      EXPECT_NEAR(flash.result.norm, plain.result.norm, 1e-2 * plain.result.norm);
      EXPECT_NEAR(flash.evaluated, plain.evaluated, 1e-3 * plain.evaluated);
      for (size_t i = 0; i < plain.gradients.size(); ++i) {
        EXPECT_LT(RelativeDifference(flash.gradients[i], plain.gradients[i]), 3e-2) << i;
      }
    }
  }
}

TEST(StandInsTest, RmsNormInOneKernelEqualsThePlainOne) {
  for (const at::ScalarType type : {at::kDouble, at::kBFloat16}) {
    const double tolerance = type == at::kDouble ? 1e-12 : 1e-2;
    for (const bool offset : {false, true}) {
      std::vector<at::Tensor> plain;
      for (const bool fused : {false, true}) {
        const StandInCalls before = Calls();
        TakeDeviceRoutesOnCpu(fused);
        const at::Tensor x = RandomTensor({9, 24}, type, 1).requires_grad_(true);
        // As a step holds them: wide where x is narrow.
        const at::Tensor weight =
            RandomTensor({24}, type == at::kDouble ? at::kDouble : at::kFloat, 2)
                .requires_grad_(true);
        const at::Tensor y = RmsNorm(x, weight, 1e-5, offset);
        (y * RandomTensor({9, 24}, type, 3)).sum().backward();
        TakeDeviceRoutesOnCpu(false);
        EXPECT_EQ(Calls().rms_norm - before.rms_norm, fused ? 1 : 0);
        EXPECT_EQ(Calls().rms_norm_backward - before.rms_norm_backward, fused ? 1 : 0);
        const std::vector<at::Tensor> found = {y.detach(), x.grad(), weight.grad()};
        if (!fused) plain = found;
        for (size_t i = 0; i < found.size(); ++i) {
          EXPECT_LT(RelativeDifference(found[i], plain[i]), tolerance) << i;
          EXPECT_EQ(found[i].scalar_type(), plain[i].scalar_type()) << i;
        }
      }
    }
  }
}

TEST(StandInsTest, CrossEntropyByWideProductsEqualsThePlainOne) {
  const at::Tensor targets = at::tensor({3, -1, 0, 40, 7, 3, 22, 1}, at::kLong);
  const at::Tensor factors = at::tensor({1.0f, 1.0f, -2.0f, 0.0f, 0.5f, 1.0f, 1.0f, 3.0f});
  {
    const DeviceRoutes routes;  // the first product tries whether there are any
    const at::Tensor ones = at::ones({2, 2}, at::kHalf);
    AddWideProduct(at::zeros({2, 2}), ones, ones);
    WideProduct(ones, ones);
  }
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const at::Tensor& factors_n : {at::Tensor(), factors}) {
      const auto gradients = [&](at::ScalarType computed) {
        // Rounded once, so that both start from the same numbers.
        const auto input = [&](at::IntArrayRef shape, uint64_t sub) {
          return RandomTensor(shape.vec(), type, sub).to(computed).requires_grad_(true);
        };
        const at::Tensor x = input({8, 24}, 1), w = input({41, 24}, 2);
        const at::Tensor loss = LinearCrossEntropy(x, w, targets, 0.25, 3, factors_n);
        loss.backward();
        return std::vector<at::Tensor>{loss.detach(), x.grad(), w.grad()};
      };
      const std::vector<at::Tensor> plain = gradients(at::kDouble);
      const DeviceRoutes routes;
      const int before = Calls().wide_products;
      const std::vector<at::Tensor> found = gradients(type);
      EXPECT_EQ(Calls().wide_products - before, 3 * 3) << "logits, dx and dw of each chunk";
      EXPECT_LT(RelativeDifference(found[0], plain[0]), 1e-6) << "logits are not rounded";
      for (size_t i = 1; i < found.size(); ++i) {
        EXPECT_LT(RelativeDifference(found[i], plain[i]), type == at::kHalf ? 1e-3 : 6e-3) << i;
      }
    }
  }
}

// As a GPU has gate and up: in two dense halves.
TEST(StandInsTest, AStepInHalvesEqualsOneInWholeRows) {
  const at::Tensor x = RandomTensor({70, 12}, at::kDouble, 1);
  const at::Tensor w = RandomTensor({20, 12}, at::kDouble, 2),
                   b = RandomTensor({20}, at::kDouble, 3);
  const at::Tensor dy = RandomTensor({70, 10}, at::kDouble, 4);
  for (const std::string kind : {"plain", "bias", "LoRA", "LoRA of one", "DoRA", "dropout"}) {
    const auto results = [&](bool halves) {
      std::vector<at::Tensor> leaves = {x.clone(), w.clone(), b.clone()};
      LoraWeights lora;
      if (kind == "plain" || kind == "bias") {
        for (at::Tensor& leaf : leaves) leaf.requires_grad_(true);
      } else {
        leaves[0].requires_grad_(true);
        lora.parts = {{0, 10, 1}, {10, 10, 2}};
        if (kind == "LoRA of one") lora.parts = {{10, 10, 2}};
        const auto parts = static_cast<int64_t>(lora.parts.size());
        lora.scale = 0.5;
        lora.a_rd = RandomTensor({3 * parts, 12}, at::kDouble, 5).requires_grad_(true);
        lora.b_cr = RandomTensor({10 * parts, 3}, at::kDouble, 6).requires_grad_(true);
        leaves.insert(leaves.end(), {lora.a_rd, lora.b_cr});
        if (kind == "DoRA" || kind == "dropout") {
          lora.base_length_c = at::linalg_vector_norm(w, 2, at::IntArrayRef({1}));
          lora.magnitude_c = RandomTensor({20}, at::kDouble, 7).requires_grad_(true);
          leaves.push_back(lora.magnitude_c);
        }
        if (kind == "dropout") {
          lora.draw = std::make_shared<DropoutDraw>(DropoutDraw{0.25});
        }
      }
      const at::Tensor y = SwiGlu(LoraLinear(
          leaves[0], leaves[1], kind == "plain" ? at::Tensor() : leaves[2], lora, halves));
      (y * dy).sum().backward();
      std::vector<at::Tensor> found = {y.detach()};
      for (const at::Tensor& leaf : leaves) {
        if (leaf.requires_grad() && leaf.grad().defined()) found.push_back(leaf.grad());
      }
      return found;
    };
    const std::vector<at::Tensor> rows = results(false), halves = results(true);
    ASSERT_EQ(rows.size(), halves.size()) << kind;
    EXPECT_GT(rows.size(), 2u) << kind;
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_LT(RelativeDifference(halves[i], rows[i]), 1e-13) << kind << ' ' << i;
    }
  }
}

TEST(StandInsTest, AttentionAddsInAFixedOrderWhereItCan) {
  const DeviceRoutes routes;
  for (const bool wanted : {true, false}) {
    for (const bool can : {true, false}) {
      Config config = WindowedConfig();
      config.train.deterministic = wanted;
      has_no_fixed_order = !can;
      Stepper stepper(config, InHalf(at::kBFloat16), InitializeWeights(config.model, 3));
      EXPECT_EQ(stepper.deterministic(), wanted);
      const StandInCalls before = Calls();
      const GradientResult result = stepper.Gradients(RandomWindows(config, true), NeverStops);
      has_no_fixed_order = false;
      // The step is done again without, and comes to its end.
      EXPECT_TRUE(result.finished);
      EXPECT_EQ(stepper.deterministic(), wanted && can);
      EXPECT_EQ(Calls().flash_backward - before.flash_backward, 4);
      EXPECT_EQ(Calls().in_fixed_order - before.in_fixed_order, wanted && can ? 4 : 0);
      EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
    }
  }
}

// Against the blocks of queries in fp32, so that a key too many or too few shows.
TEST(StandInsTest, FlashAttentionSeesTheKeysThatBlocksSee) {
  constexpr int64_t kTokens = 12, kHeads = 4, kKeys = 2, kSize = 8;
  const at::Tensor starts = at::tensor({0, 1, 1, 1, 4, 4, 4, 4, 4, 4, 10, 10,  //
                                        0, 0, 0, 0, 0, 5, 6, 6, 6, 6, 6,  6},
                                       at::kLong)
                                .view({2, kTokens});
  const at::Tensor bounds = at::tensor({0, 1, 4, 10, 12, 17, 18, 24}, at::kInt);
  const RotaryTable rotary = RotaryOfDocuments(
      MakeRotaryTable(kTokens, kSize, 100.0, at::TensorOptions(at::kFloat)), starts);
  const at::Tensor qkv =
      RandomTensor({2 * kTokens, (kHeads + 2 * kKeys) * kSize}, at::kBFloat16, 4);
  const DeviceRoutes routes;
  for (const int64_t window : {0, 1, 2, 5, 6, 40}) {
    for (const double scale : {0.0, 0.7}) {
      AttentionShape shape = {2, kTokens, kHeads, kKeys, kSize, window, scale};
      shape.starts_bt = starts;
      TakeDeviceRoutesOnCpu(false);
      const at::Tensor expected = CausalAttention(qkv.to(at::kFloat), rotary, shape);
      TakeDeviceRoutesOnCpu(true);
      shape.documents = {bounds, 6};
      EXPECT_LT(RelativeDifference(CausalAttention(qkv, rotary, shape), expected), 8e-3)
          << window << " " << scale;
    }
  }
}

TEST(StandInsTest, FlashAttentionIsUsedWhereItCanBe) {
  const auto usable = [](at::ScalarType dtype, int64_t head_dim) {
    return HasFlashAttention(at::empty({1}, dtype), head_dim, true);
  };
  EXPECT_FALSE(usable(at::kBFloat16, 64));
  const DeviceRoutes routes;
  EXPECT_TRUE(usable(at::kBFloat16, 64));
  EXPECT_TRUE(usable(at::kHalf, 256));
  EXPECT_FALSE(usable(at::kFloat, 64));
  EXPECT_FALSE(usable(at::kBFloat16, 20));
  EXPECT_FALSE(usable(at::kBFloat16, 264));
}

TEST(StandInsTest, AStepReadsTheDeviceOnceAndGivesItPinnedMemory) {
  const DeviceRoutes routes;
  const Config config = WindowedConfig();
  Stepper stepper(config, InHalf(at::kBFloat16), InitializeWeights(config.model, 3));
  const Batch batch = RandomWindows(config, /*packed=*/true);
  stepper.Gradients(batch, NeverStops);
  stepper.Apply(1e-3, 1);
  const int64_t reads = HostReads();
  const int pins = Calls().pins;
  stepper.Gradients(batch, NeverStops);
  EXPECT_EQ(HostReads(), reads + 1);
  // For each micro-batch: tokens, targets, which of them are scored, starts, bounds.
  EXPECT_EQ(Calls().pins, pins + 2 * 5);
  stepper.SummedLossOf(batch);
  EXPECT_EQ(HostReads(), reads + 2);
  stepper.Apply(1e-3, 2);
  EXPECT_EQ(HostReads(), reads + 2);
}

TEST(StandInsTest, StepsInFp16EqualThoseInFp32) {
  const DeviceRoutes routes;
  const Config config = WindowedConfig();
  const Batch batch = RandomWindows(config, /*packed=*/true);
  std::vector<double> losses;
  std::vector<at::Tensor> weights, moments;
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
    Stepper stepper(config, InHalf(dtype), InitializeWeights(config.model, 3));
    stepper.SetLossScale({4096, 0});
    for (int64_t t = 1; t <= 4; ++t) {
      const GradientResult result = stepper.Gradients(batch, NeverStops);
      EXPECT_FALSE(result.overflowed);
      losses.push_back(result.loss);
      losses.push_back(result.norm);
      stepper.Apply(1e-3, t);
    }
    weights.push_back(stepper.weights().head_vd.detach().clone());
    moments.push_back(stepper.OptimizerState().front().second.clone());
    EXPECT_EQ(stepper.loss_scale().good_updates, dtype == at::kHalf ? 4 : 0);
  }
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(losses[i], losses[i + 8], 2e-3 * losses[i]) << i;
  EXPECT_LT(RelativeDifference(weights[1], weights[0]), 2e-2);
  EXPECT_LT(RelativeDifference(moments[1], moments[0]), 2e-2) << "AdamW must not see the scale";
}

TEST(StandInsTest, AnOverflowInFp16HalvesTheLossScaleUntilItCannotHelp) {
  const DeviceRoutes routes;
  const Config config = WindowedConfig();
  const Batch batch = RandomWindows(config, /*packed=*/false);
  Stepper stepper(config, InHalf(at::kHalf), InitializeWeights(config.model, 3));
  const double small = stepper.Gradients(batch, NeverStops).norm;
  stepper.SetLossScale({std::ldexp(1, 24), 5});
  int overflows = 0;
  GradientResult result;
  while ((result = stepper.Gradients(batch, NeverStops)).overflowed) ++overflows;
  EXPECT_GT(overflows, 0);
  EXPECT_EQ(stepper.loss_scale().scale, std::ldexp(1, 24 - overflows));
  EXPECT_EQ(stepper.loss_scale().good_updates, 0);
  EXPECT_NEAR(result.norm, small, 1e-2 * small);
  stepper.SetLossScale({1024, LossScale::kGrowEvery - 1});
  EXPECT_FALSE(stepper.Gradients(batch, NeverStops).overflowed);
  stepper.Apply(1e-3, 1);
  EXPECT_EQ(stepper.loss_scale().scale, 2048);

  std::vector<at::Tensor> broken = InitializeWeights(config.model, 3);
  broken[0].fill_(1e6);
  Stepper lost(config, InHalf(at::kHalf), broken);
  lost.SetLossScale({4, 0});
  EXPECT_TRUE(lost.Gradients(batch, NeverStops).overflowed);
  EXPECT_TRUE(lost.Gradients(batch, NeverStops).overflowed);
  const GradientResult last = lost.Gradients(batch, NeverStops);
  EXPECT_FALSE(last.overflowed) << "a loss scale below 1 is no more a matter of fp16";
  EXPECT_FALSE(std::isfinite(last.norm));
}

TEST(StandInsTest, AGpuWithoutBf16TrainsInFp16AndTellsItsMemory) {
  const c10::Device cuda(c10::kCUDA, 0), cpu(c10::kCPU);
  EXPECT_EQ(CudaCapability(), 75);
  EXPECT_EQ(ChooseDtype("auto", cuda), at::kHalf);
  EXPECT_EQ(ChooseDtype("fp32", cuda), at::kFloat);
  EXPECT_ERROR(ChooseDtype("bf16", cuda), ExitCode::kBadConfig, "compute capability 7.5");
  EXPECT_EQ(ChooseDtype("auto", cpu), at::kFloat);
  EXPECT_ERROR(ChooseDtype("fp16", cpu), ExitCode::kBadConfig, "CPU");
  EXPECT_ERROR(ChooseDtype("fp16", c10::Device(c10::kMPS)), ExitCode::kBadConfig, "MPS");
  const Placement there = {cuda, at::kHalf, 1};
  EXPECT_EQ(AvailableMemory(there), 6'000'000'000);
  EXPECT_EQ(UsedMemory(there), 9'000'000'000);
  EXPECT_EQ(UsedMemory(InHalf(at::kFloat)) > 0, ResidentBytes() > 0);
}

// Two scored tokens: in the first steps the gradients do not fit into fp16.
RunOptions RunInFp16(const std::string& directory, const std::string& name, int64_t steps) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * i) + "\n";
  WriteFileDurably(directory + "/data.txt", text);
  RunOptions options;
  options.config = WindowedConfig();
  options.config.model.context = 2;
  options.config.train.batch = 1;
  options.config.data.paths = {directory + "/data.txt"};
  options.config.train.device = "cpu";
  options.config.train.dtype = "fp16";
  options.config.train.threads = 1;
  options.config.train.steps = steps;
  options.config.train.eval_windows = 4;
  options.config.optimizer.lr = 1e-2;
  options.config.checkpoint.dir = directory + "/" + name;
  return options;
}

TEST(StandInsTest, ARunInFp16ResumesToTheSameBytes) {
  const DeviceRoutes routes;
  const TempDir dir;
  Trainer(RunInFp16(dir.path(), "whole", 8)).Train();
  RunOptions parts = RunInFp16(dir.path(), "parts", 8);
  auto calls = std::make_shared<int64_t>(0);
  parts.stop_signal = [=] { return ++*calls > 4 ? 15 : 0; };
  Trainer(parts).Train();
  EXPECT_LT(ListCheckpoints(dir.path() + "/parts").back(), 8);
  parts = RunInFp16(dir.path(), "parts", 8);
  parts.resume = "auto";
  Trainer(parts).Train();
  const auto file = [&](const std::string& name, const std::string& which) {
    return ReadWholeFile(dir.path() + "/" + name + "/step-00000008/" + which);
  };
  const auto scale_of = [&](const std::string& name) {
    return nlohmann::json::parse(file(name, "state.json"))["loss_scale"];
  };
  EXPECT_GT(scale_of("whole")["skipped"], 0);
  EXPECT_LT(scale_of("whole")["scale"], LossScale::kFirst);
  EXPECT_EQ(scale_of("whole"), scale_of("parts"));
  for (const std::string which : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_TRUE(file("whole", which) == file("parts", which)) << which;
  }
  EXPECT_NE(file("whole", "config.json").find("float16"), std::string::npos);
}

// AdamW's first update moves a weight by the learning rate, and not by less.
TEST(StandInsTest, ASkippedStepInFp16IsNoUpdate) {
  const DeviceRoutes routes;
  const TempDir dir;
  const RunOptions options = RunInFp16(dir.path(), "short", 2);
  Trainer(options).Train();
  const std::string step = options.config.checkpoint.dir + "/step-00000002";
  const auto state = nlohmann::json::parse(ReadWholeFile(step + "/state.json"));
  ASSERT_EQ(state["loss_scale"]["skipped"], 1);
  const at::Tensor embedding =
      ReadSafetensors(step + "/optimizer.safetensors").at("master.model.embed_tokens.weight");
  const at::Tensor before =
      InitializeWeights(options.config.model, static_cast<uint64_t>(options.config.train.seed))[0];
  const double moved = (embedding - before).abs().max().item<double>();
  const double lr = LearningRate(options.config.optimizer, 1, 2);
  EXPECT_NEAR(moved, lr, 0.02 * lr);
}

TEST(StandInsTest, ASideStreamWaitsForWorkBeforeAndHoldsBackWorkAfter) {
  SideStream side(c10::Device(c10::kCUDA, 0));
  StreamCalls().clear();
  side.HoldBackUntilDone();
  EXPECT_TRUE(StreamCalls().empty()) << "nothing ran there yet";
  side.Run([] { StreamCalls().emplace_back("copy"); });
  side.HoldBackUntilDone();
  side.Wait();
  EXPECT_EQ(StreamCalls(),
            (std::vector<std::string>{"record 0", "use 1", "block 1", "copy", "record 1", "use 0",
                                      "block 0", "wait for 1"}));
}

TEST(StandInsTest, FusedAdamwDoesWhatOursDoes) {
  ASSERT_TRUE(HasFusedAdamw());
  const AdamwNumbers numbers = {1e-2, 0.9, 0.95, 0.1, 1e-8, 3};
  const at::Tensor clip = at::full({}, 0.25f);
  AdamwTensors tensors;
  std::vector<at::Tensor> expected;
  const int calls = Calls().adamw;
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
  EXPECT_EQ(Calls().adamw, calls + 1);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_LT(RelativeDifference(tensors.parameters[i], expected[i]), 1e-6);
  }
}

#endif

}  // namespace
}  // namespace gpuctl::trainer
