#include "trainer/preflight/preflight.h"

#include <gtest/gtest.h>

#include "trainer/tests/expect_error.h"

namespace gpuctl::trainer {
namespace {

// Qwen2.5-0.5B, by its config.json.
Config HalfBillion() {
  Config config;
  config.model = {24, 896, 14, 2, 4864, 1024, 151936, 1e6, 1e-6};
  config.model.qkv_bias = true;
  config.model.init = "base";
  config.train.batch = 64;
  config.train.micro_batch = 0;
  return config;
}

TEST(PreflightTest, GpusAreFoundBySimilarNames) {
  EXPECT_EQ(FindGpu("h100").name, "H100");
  EXPECT_EQ(FindGpu("rtx4090").memory_gb, 24);
  EXPECT_EQ(FindGpu("RTX-A6000").name, "RTX A6000");
  EXPECT_EQ(FindGpu("A100-80GB").name, "A100");
  EXPECT_EQ(FindGpu("A100-40GB").memory_gb, 40);
  EXPECT_ERROR(FindGpu("H1000"), ExitCode::kBadConfig, "none of L4, ");
}

TEST(PreflightTest, TheMicroBatchTimesTheAccumulationIsTheBatch) {
  for (const Gpu& gpu : KnownGpus()) {
    const GpuPlan plan = PlanForGpu(HalfBillion(), gpu, 100);
    ASSERT_TRUE(plan.fits) << gpu.name;
    EXPECT_GE(plan.micro_batch * plan.accumulation, 64) << gpu.name;
    EXPECT_LT(plan.micro_batch * (plan.accumulation - 1), 64) << gpu.name;
    EXPECT_LT(static_cast<double>(plan.bytes), gpu.memory_gb * 1e9) << gpu.name;
  }
  const GpuPlan small = PlanForGpu(HalfBillion(), FindGpu("L4"), 100);
  const GpuPlan large = PlanForGpu(HalfBillion(), FindGpu("H100"), 100);
  EXPECT_GT(large.micro_batch, small.micro_batch);
  EXPECT_NEAR(small.seconds / large.seconds, 989.0 / 121.0, 1e-9);
}

TEST(PreflightTest, WhatDoesNotFitIsToldWhatWould) {
  Config config = HalfBillion();
  config.model.layers = 32;
  config.model.d_model = 4096;
  config.model.heads = 32;
  config.model.ffn = 14336;
  const GpuPlan plan = PlanForGpu(config, FindGpu("L4"), 100);
  EXPECT_FALSE(plan.fits);
  EXPECT_NE(plan.advice.find("lora.rank=16"), std::string::npos) << plan.advice;
  config.lora.rank = 16;
  config.train.recompute = true;
  EXPECT_TRUE(PlanForGpu(config, FindGpu("L4"), 100).fits);
}

}  // namespace
}  // namespace gpuctl::trainer
