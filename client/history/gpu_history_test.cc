#include "client/history/gpu_history.h"

#include <gtest/gtest.h>

#include <limits>

namespace gpuctl {
namespace {

constexpr int64_t kBegin = 1'700'000'000'000;

MetricHistory Steps(int count, int64_t every_ms) {
  MetricHistory history;
  for (int i = 1; i <= count; ++i) {
    MetricSample sample;
    sample.step = i;
    sample.loss = 1;
    sample.time_ms = kBegin + every_ms * i;
    history.Add(sample);
  }
  return history;
}

TelemetrySample Line(int64_t ms, std::initializer_list<double> utilization) {
  TelemetrySample sample;
  sample.time_ms = kBegin + ms;
  for (const double percent : utilization) {
    TelemetrySample::Gpu gpu;
    gpu.utilization_percent = percent;
    sample.gpus.push_back(gpu);
  }
  return sample;
}

TEST(GpuHistoryTest, TheLinesOfASlowStepGiveItsMean) {
  const MetricHistory history = Steps(3, 4000);
  GpuHistory gpus(history);
  for (int s = 1; s <= 14; ++s) gpus.Add(Line(1000 * s, {s * 1.0, 100}));
  gpus.Finish();
  ASSERT_EQ(gpus.groups().size(), 3u);  // what came after the last step does not count
  EXPECT_EQ(gpus.groups()[1].step, 2);
  EXPECT_FLOAT_EQ(gpus.groups()[1].gpus[0][GpuHistory::kUtilization], 6.5F);
  EXPECT_DOUBLE_EQ(*gpus.UtilizationAt(history.points()[1]), 53.25);
  EXPECT_FALSE(gpus.groups()[1].Mean(GpuHistory::kPower).has_value());
}

TEST(GpuHistoryTest, FastStepsShareALine) {
  const MetricHistory history = Steps(100, 100);
  GpuHistory gpus(history);
  for (int s = 1; s <= 10; ++s) gpus.Add(Line(1000 * s, {50}));
  gpus.Finish();
  EXPECT_EQ(gpus.groups().size(), 10u);
  for (const HistoryPoint& point : history.points()) EXPECT_EQ(gpus.UtilizationAt(point), 50);
}

TEST(GpuHistoryTest, WhatNobodyMeasuredIsUnknown) {
  const MetricHistory history = Steps(100, 1000);
  GpuHistory gpus(history);
  gpus.Add(Line(-100'000, {99}));  // long before the training
  gpus.Add(Line(50'000, {std::numeric_limits<double>::quiet_NaN()}));
  gpus.Add(Line(90'000, {40}));
  gpus.Finish();
  EXPECT_FALSE(gpus.UtilizationAt(history.points()[9]).has_value());
  EXPECT_FALSE(gpus.UtilizationAt(history.points()[49]).has_value());
  EXPECT_EQ(gpus.UtilizationAt(history.points()[89]), 40);
  EXPECT_FALSE(gpus.UtilizationAt(history.points()[99]).has_value());
}

TEST(GpuHistoryTest, WithoutTimesNothingJoins) {
  MetricHistory history;
  MetricSample sample;
  sample.step = 1;
  sample.loss = 1;
  history.Add(sample);
  GpuHistory gpus(history);
  gpus.Add(Line(0, {40}));
  gpus.Finish();
  EXPECT_TRUE(gpus.groups().empty());
  EXPECT_FALSE(gpus.UtilizationAt(history.points()[0]).has_value());
}

}  // namespace
}  // namespace gpuctl
