#include "client/metrics/gpu_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"

namespace gpuctl {
namespace {

using Gpu = TelemetrySample::Gpu;
constexpr double kGib = 1 << 30;

TEST(GpuSummaryTest, EachGpuHasABar) {
  std::vector<Gpu> gpus(8, Gpu{97.0, 60 * kGib, 80 * kGib, 400.0, 65.0});
  gpus[2] = {3.0, 71.5 * kGib, 80 * kGib, 90.0, 41.0};
  EXPECT_EQ(absl::StrJoin(GpuSummary(gpus, false), ", "),
            "8 GPUs ██▁█████ 3–97%, 60.0–71.5/80 GB, 90–400 W, 41–65°C");
  EXPECT_EQ(absl::StrJoin(GpuSummary(gpus, true), ", "),
            "8 GPUs @@_@@@@@ 3-97%, 60.0-71.5/80 GB, 90-400 W, 41-65 C");
  gpus[2].utilization_percent.reset();
  EXPECT_EQ(UtilizationBars(gpus, true), "@@?@@@@@");
  EXPECT_EQ(UtilizationText(gpus, "-"), "97%");
}

TEST(GpuSummaryTest, WhatIsNotKnownIsNotThere) {
  EXPECT_EQ(absl::StrJoin(GpuSummary(std::vector<Gpu>(2), true), ", "), "2 GPUs");
  EXPECT_EQ(UtilizationText({}, "-"), "");
  std::vector<Gpu> gpus(40);
  gpus[0].utilization_percent = 50;
  EXPECT_EQ(absl::StrJoin(GpuSummary(gpus, true), ", "), "40 GPUs 50%");
}

}  // namespace
}  // namespace gpuctl
