#include "client/gpu_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

TEST(ParseGpuRequirementTest, TakesNamesAsPeopleWriteThem) {
  EXPECT_EQ(ParseGpuRequirement("h100")->name, "H100");
  EXPECT_EQ(ParseGpuRequirement("H100:4")->count, 4);
  EXPECT_EQ(ParseGpuRequirement("rtx_4090")->name, "RTX-4090");
  EXPECT_EQ(ParseGpuRequirement("4090")->name, "RTX-4090");
  EXPECT_EQ(ParseGpuRequirement("A100-80GB:1")->name, "A100-80GB");
}

TEST(ParseGpuRequirementTest, TakesMemoryRanges) {
  const auto range = ParseGpuRequirement("24GB..80GB:2");
  ASSERT_TRUE(range.ok()) << range.status();
  EXPECT_EQ(range->min_memory_bytes, 24'000'000'000);
  EXPECT_EQ(range->max_memory_bytes, 80'000'000'000);
  EXPECT_EQ(range->count, 2);
  EXPECT_EQ(ParseGpuRequirement("24GB")->max_memory_bytes, 0);
  EXPECT_FALSE(ParseGpuRequirement("80GB..24GB").ok());
}

TEST(ParseGpuRequirementTest, NamesTheNearestRightOne) {
  EXPECT_THAT(ParseGpuRequirement("H10O").status().message(), HasSubstr("did you mean \"H100\"?"));
  EXPECT_THAT(ParseGpuRequirement("RTX4O90").status().message(), HasSubstr("\"RTX-4090\""));
  EXPECT_THAT(ParseGpuRequirement("A100").status().message(),
              HasSubstr("write A100-40GB or A100-80GB"));
  EXPECT_FALSE(ParseGpuRequirement("H100:0").ok());
  EXPECT_FALSE(ParseGpuRequirement("H100:many").ok());
  EXPECT_FALSE(ParseGpuRequirement("").ok());
}

TEST(CanonicalGpuNameTest, KnowsDriversNames) {
  constexpr int64_t kGb = 1'000'000'000;
  EXPECT_EQ(CanonicalGpuName("NVIDIA H100 80GB HBM3", 85 * kGb), "H100");
  EXPECT_EQ(CanonicalGpuName("NVIDIA H200", 150 * kGb), "H200");
  EXPECT_EQ(CanonicalGpuName("NVIDIA A100-SXM4-80GB", 85 * kGb), "A100-80GB");
  EXPECT_EQ(CanonicalGpuName("NVIDIA A100-SXM4-40GB", 42 * kGb), "A100-40GB");
  EXPECT_EQ(CanonicalGpuName("NVIDIA GeForce RTX 4090", 25 * kGb), "RTX-4090");
  EXPECT_EQ(CanonicalGpuName("NVIDIA L4", 24 * kGb), "L4");
  EXPECT_EQ(CanonicalGpuName("NVIDIA L40S", 48 * kGb), "L40S");
  EXPECT_EQ(CanonicalGpuName("NVIDIA RTX A6000", 51 * kGb), "RTX-A6000");
  EXPECT_EQ(CanonicalGpuName("Banana 9000", kGb), "Banana 9000");
}

TEST(GpuSatisfiesTest, ComparesNamesOrMemory) {
  const GpuRequirement h100 = *ParseGpuRequirement("H100");
  EXPECT_TRUE(GpuSatisfies(h100, "H100", 1));
  EXPECT_FALSE(GpuSatisfies(h100, "H200", int64_t{1} << 40));
  const GpuRequirement range = *ParseGpuRequirement("24GB..48GB");
  EXPECT_TRUE(GpuSatisfies(range, "L4", 23'034LL << 20));
  EXPECT_FALSE(GpuSatisfies(range, "T4", 15'360LL << 20));
  EXPECT_FALSE(GpuSatisfies(range, "H100", 81'559LL << 20));
}

}  // namespace
}  // namespace gpuctl
