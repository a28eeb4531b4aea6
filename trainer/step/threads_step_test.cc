// Steps with several threads in a worker.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/cpu/sgemm.h"
#include "trainer/lora/adapters.h"
#include "trainer/step/stepper.h"
#include "trainer/tests/tensors.h"

namespace gpuctl::trainer {
namespace {

// Large enough for several pieces in each operation.
Config ConfigWithPieces() {
  Config config;
  config.model = {2, 192, 6, 2, 768, 320, 4096, 10000.0, 1e-5};
  config.model.qk_norm = true;
  config.train.batch = 3;
  config.train.micro_batch = 1;
  return config;
}

Config AdaptedWithPieces() {
  Config config = ConfigWithPieces();
  config.model.init = "base";
  config.lora.rank = 8;
  config.lora.targets = {"all-linear"};
  config.lora.dora = true;
  config.lora.dropout = 0.25;
  config.lora.modules_to_save = {"model.norm"};
  return config;
}

Batch BatchWithPieces(const Config& config) {
  return MakeBatch(config.train.batch, config.model.context, /*packed=*/true,
                   [&](int64_t row, const WindowSlot& slot) {
                     for (int64_t t = 0; t < config.model.context; ++t) {
                       const uint64_t bits = Random64(6, RandomStream::kBench, 0,
                                                      static_cast<uint64_t>(row * 1000 + t));
                       slot.inputs[t] = static_cast<int64_t>(bits % 4096);
                       slot.targets[t] = static_cast<int64_t>((bits >> 20) % 4096);
                       slot.starts[t] = t / 200 * 200;
                     }
                     return config.model.context;
                   });
}

// How the frozen matrices of a model with adapters are stored.
enum class Stored { kDense, kInStrips };

// Returns losses, norms, weights and moments after two steps.
std::vector<at::Tensor> AfterTwoSteps(const Config& config, int workers, int threads,
                                      Stored stored = Stored::kDense) {
  const AdapterLayout layout = MakeAdapterLayout(config);
  std::vector<at::Tensor> flat = InitializeWeights(config.model, 3);
  for (const AdaptedMatrix& matrix : layout.matrices) {
    if (matrix.packed_rows.empty()) continue;
    flat[matrix.spec] = FrozenMatrix::Pack(flat[matrix.spec], matrix.packed_rows, "a matrix");
  }
  for (size_t i = 0; i < flat.size() && stored == Stored::kInStrips; ++i) {
    if (layout.frozen[i] && flat[i].dim() == 2) flat[i] = FrozenMatrix::PutInStrips(flat[i]);
  }
  if (layout.adapted()) AppendInitialAdapters(layout, 7, &flat);
  Placement placement{c10::Device(c10::kCPU), c10::kFloat, workers};
  placement.threads = threads;
  Stepper stepper(config, placement, flat);
  std::vector<at::Tensor> results;
  const Batch batch = BatchWithPieces(config);
  for (int64_t t = 1; t <= 2; ++t) {
    const GradientResult result = stepper.Gradients(batch, [] { return false; });
    results.push_back(at::full({2}, result.loss, at::kDouble));
    results.back()[1] = result.norm;
    stepper.Apply(1e-2, t);
  }
  results.push_back(at::full({1}, stepper.SummedLossOf(batch), at::kDouble));
  for (const NamedTensors& named : {stepper.Weights(), stepper.OptimizerState()}) {
    for (const auto& [name, tensor] : named) results.push_back(tensor.clone());
  }
  return results;
}

void ExpectTheSameBits(const Config& config, int workers, int threads,
                       Stored stored = Stored::kDense) {
  const std::vector<at::Tensor> alone = AfterTwoSteps(config, workers, 1, stored);
  const std::vector<at::Tensor> helped = AfterTwoSteps(config, workers, threads, stored);
  ASSERT_EQ(alone.size(), helped.size());
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(at::equal(alone[i], helped[i])) << i;
}

TEST(ThreadsStepTest, TheThreadsOfAWorkerChangeNoBit) {
  ExpectTheSameBits(ConfigWithPieces(), 1, 3);
  ExpectTheSameBits(ConfigWithPieces(), 2, 2);
}

TEST(ThreadsStepTest, NorDoTheyWithAdaptersAndAModelInFourBits) {
  ExpectTheSameBits(AdaptedWithPieces(), 1, 2);
  Config packed = AdaptedWithPieces();
  packed.lora.base_dtype = "nf4";
  packed.train.recompute = true;
  ExpectTheSameBits(packed, 1, 3);
}

TEST(ThreadsStepTest, NorDoTheyWithAModelInStripsWhichTrainsLikeADenseOne) {
  if (!cpu::HasSgemm()) GTEST_SKIP() << "strips are for processors with AVX2";
  Config plain = AdaptedWithPieces();
  plain.lora.dora = false;
  plain.lora.dropout = 0;
  for (const Config& config : {plain, AdaptedWithPieces()}) {
    ExpectTheSameBits(config, 1, 3, Stored::kInStrips);
    const std::vector<at::Tensor> dense = AfterTwoSteps(config, 1, 2);
    const std::vector<at::Tensor> strips = AfterTwoSteps(config, 1, 2, Stored::kInStrips);
    ASSERT_EQ(dense.size(), strips.size());
    // Losses and norms. Of moments of nearly 0 rounding leaves little.
    for (size_t i = 0; i < 3; ++i) EXPECT_LT(RelativeDifference(strips[i], dense[i]), 1e-5) << i;
    for (size_t i = 3; i < dense.size(); ++i) {
      EXPECT_LT(RelativeDifference(strips[i], dense[i]), 2e-3) << i;
    }
  }
}

TEST(ThreadsStepTest, CoresThatTheBatchLeavesHelpInsideAWorker) {
  const auto placed = [](int64_t threads, int64_t batch) {
    TrainConfig config;
    config.device = "cpu";
    config.threads = threads;
    config.batch = batch;
    const Placement placement = ChoosePlacement(config);
    return std::pair<int, int>(placement.workers, placement.threads);
  };
  using Pair = std::pair<int, int>;
  EXPECT_EQ(placed(8, 1), Pair(1, 8));
  EXPECT_EQ(placed(8, 2), Pair(2, 4));
  EXPECT_EQ(placed(8, 8), Pair(8, 1));
  EXPECT_EQ(placed(8, 64), Pair(8, 1));
  EXPECT_EQ(placed(2, 3), Pair(1, 2));  // two workers would leave one idle half of the time
  EXPECT_EQ(placed(1, 5), Pair(1, 1));
}

}  // namespace
}  // namespace gpuctl::trainer
