// The comparison with real runs is in tests/prepared_runs.py.

#include "trainer/step/memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/checkpoint/paged_tensor.h"
#include "trainer/step/device.h"
#include "trainer/tests/expect_error.h"

namespace gpuctl::trainer {
namespace {

constexpr int64_t kMiB = 1 << 20;

Config RunConfig() {
  Config config;
  config.model = {6, 384, 6, 2, 1024, 256, 8192, 10000.0, 1e-5};
  config.train.batch = 16;
  config.train.micro_batch = 0;
  return config;
}

Placement OnCores(int workers, int threads = 1) {
  return {c10::Device(c10::kCPU), c10::kFloat, workers, threads};
}

MemoryPlan PlanFor(const Config& config, int64_t available, int workers = 2) {
  return PlanMemory(config, OnCores(workers), available, /*base=*/100 * kMiB);
}

// Two threads are divided among the workers.
int64_t TotalOf(const Config& config, int64_t micro_batch, int workers = 2) {
  const int threads = workers == 1 ? 2 : 1;
  return EstimateMemory(config, OnCores(workers, threads), micro_batch, false, 0).total;
}

TEST(MemoryTest, EachPartGrowsWithWhatItIsFor) {
  const Config config = RunConfig();
  const MemoryEstimate one = EstimateMemory(config, OnCores(1), 1, true, kMiB);
  const MemoryEstimate two = EstimateMemory(config, OnCores(2), 1, true, kMiB);
  const MemoryEstimate wide = EstimateMemory(config, OnCores(2), 4, true, kMiB);
  EXPECT_EQ(one.weights, two.weights);
  EXPECT_EQ(one.moments, 2 * one.weights);
  EXPECT_EQ(two.gradients, 2 * one.gradients);
  EXPECT_EQ(two.activations, 2 * one.activations);
  EXPECT_GT(wide.activations, 3 * two.activations);
  EXPECT_EQ(one.snapshot, 3 * one.weights);
  EXPECT_EQ(one.total, one.weights + one.moments + one.gradients + one.activations + one.snapshot +
                           one.batch + one.base);
  EXPECT_EQ(EstimateMemory(config, OnCores(1), 1, false, 0).snapshot, 0);
}

TEST(MemoryTest, RecomputingFreezingAndAdaptersNeedLess) {
  const Config config = RunConfig();
  Config again = config;
  again.train.recompute = true;
  EXPECT_LT(TotalOf(again, 4), TotalOf(config, 4));
  Config frozen = config;
  frozen.train.freeze = {"model.embed_tokens.weight", "model.layers.0.*", "model.layers.1.*"};
  EXPECT_LT(TotalOf(frozen, 4), TotalOf(config, 4));
  Config adapted = config;
  adapted.model.init = "base";
  adapted.lora.rank = 8;
  const MemoryEstimate estimate = EstimateMemory(adapted, OnCores(2), 1, true, 0);
  EXPECT_LT(estimate.moments, estimate.weights / 5);
  EXPECT_LT(estimate.snapshot, estimate.weights / 5);
}

TEST(MemoryTest, GradientsIn16BitsNeedFp32OnlyWhereTheyAdd) {
  const Config config = RunConfig();
  const auto gradients = [](const Config& of, int64_t micro_batch) {
    const Placement placement = {c10::Device(c10::kCUDA), c10::kBFloat16, 1, 1};
    return EstimateMemory(of, placement, micro_batch, false, 0).gradients;
  };
  const int64_t in_fp32 = EstimateMemory(config, OnCores(1), 1, false, 0).weights;
  EXPECT_EQ(gradients(config, 8) - gradients(config, 16), in_fp32);
  Config two = config;
  two.train.processes = 2;
  EXPECT_EQ(gradients(two, 8), gradients(config, 8));
}

TEST(MemoryTest, MomentsIn8BitsNeedAQuarter) {
  Config config = RunConfig();
  const MemoryEstimate wide = EstimateMemory(config, OnCores(2), 1, true, 0);
  config.optimizer.state = "int8";
  const MemoryEstimate small = EstimateMemory(config, OnCores(2), 1, true, 0);
  const double weights = static_cast<double>(wide.weights) / 4;
  EXPECT_NEAR(static_cast<double>(small.moments) / weights, 2.03, 0.01);
  EXPECT_EQ(wide.snapshot - small.snapshot, wide.moments - small.moments);
  EXPECT_EQ(wide.total - small.total, 2 * (wide.moments - small.moments));
}

TEST(MemoryTest, TheMicroBatchIsTheLargestThatFits) {
  const Config config = RunConfig();
  EXPECT_EQ(PlanFor(config, TotalOf(config, 4)).micro_batch, 4);
  EXPECT_EQ(PlanFor(config, TotalOf(config, 4) - 1).micro_batch, 2);
  EXPECT_EQ(PlanFor(config, TotalOf(config, 2) - 1).micro_batch, 1);
  const MemoryPlan plan = PlanFor(config, TotalOf(config, 1) - 1);
  EXPECT_EQ(plan.placement.workers, 1);
  EXPECT_EQ(plan.placement.threads, 2);
  Config given = config;
  given.train.micro_batch = 3;
  EXPECT_EQ(PlanFor(given, int64_t{64} << 30).micro_batch, 3);
  given.train.batch = 2;
  EXPECT_EQ(PlanFor(given, int64_t{64} << 30).micro_batch, 1);
}

TEST(MemoryTest, WithoutRoomForACopyTrainingWaitsForCheckpoints) {
  Config config = RunConfig();
  config.train.threads = 2;
  config.checkpoint.dir = "somewhere";
  const int64_t copied = EstimateMemory(config, OnCores(1, 2), 1, true, 0).total;
  EXPECT_TRUE(PlanFor(config, copied).copies_checkpoints);
  const MemoryPlan plan = PlanFor(config, copied - 1);
  EXPECT_FALSE(plan.copies_checkpoints);
  EXPECT_GT(plan.micro_batch * plan.placement.workers, 1);  // the room of the copy
  EXPECT_NE(Describe(plan).find("training waits"), std::string::npos);
}

TEST(MemoryTest, FewerWorkersHaveTheSameThreads) {
  Config config = RunConfig();
  const MemoryPlan plan = PlanFor(config, TotalOf(config, 1, 3) - 1, 7);
  EXPECT_EQ(plan.placement.workers, 2);
  EXPECT_EQ(plan.placement.threads, 3);
  EXPECT_ERROR(PlanFor(config, TotalOf(config, 1, 1) - 1), ExitCode::kBadConfig, "plan memory");
}

std::string HintFor(const Config& config, int64_t available) {
  try {
    PlanFor(config, available);
  } catch (const Error& error) {
    return error.hint();
  }
  return "it fits";
}

TEST(MemoryTest, ARunThatDoesNotFitIsToldWhatWould) {
  Config config = RunConfig();
  config.train.micro_batch = 4;
  config.train.threads = 2;
  EXPECT_EQ(HintFor(config, TotalOf(config, 4, 1)), "it fits");
  EXPECT_EQ(HintFor(config, TotalOf(config, 4, 1) - 1), "it fits with train.micro_batch=1");
  EXPECT_EQ(HintFor(config, TotalOf(config, 1, 1) - 1),
            "it fits with train.micro_batch=1 and train.recompute=true");
  Config again = config;
  again.train.recompute = true;
  EXPECT_EQ(HintFor(config, TotalOf(again, 1, 1) - 1),
            "it fits with optimizer.state=int8, train.micro_batch=1 and train.recompute=true");
  Config small = again;
  small.optimizer.state = "int8";
  EXPECT_NE(HintFor(config, TotalOf(small, 1, 1) - 1).find("smaller model"), std::string::npos);
  config.model.init = "base";
  again.model.init = "base";
  EXPECT_EQ(HintFor(config, TotalOf(small, 1, 1) - 1),
            "it fits with lora.rank=16, train.micro_batch=1 and train.recompute=true");
}

TEST(MemoryTest, LargePagedTensorsTakeMemoryOnlyWhereTheyAreWritten) {
  const at::TensorOptions options(at::kFloat);
  const int64_t before = ResidentBytes();
  at::Tensor large = PagedZeros({1 << 10, 1 << 16}, options);  // 256 MiB
  EXPECT_LT(ResidentBytes() - before, 64 << 20);
  large.narrow(0, 0, 512).fill_(1);
  EXPECT_GT(ResidentBytes() - before, 96 << 20);
  EXPECT_EQ(large.sum(at::kDouble).item<double>(), 512 * 65536.0);
  large.reset();
  EXPECT_LT(ResidentBytes() - before, 64 << 20);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kByte}) {
    for (const int64_t rows : {0, 3, 1 << 12}) {
      const at::Tensor zeros = PagedZeros({rows, 1024}, at::TensorOptions(type));
      EXPECT_EQ(zeros.scalar_type(), type);
      EXPECT_EQ(zeros.sizes(), (std::vector<int64_t>{rows, 1024}));
      EXPECT_FALSE(zeros.ne(0).any().item<bool>());
    }
  }
}

}  // namespace
}  // namespace gpuctl::trainer
