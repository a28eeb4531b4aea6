#include "client/spec/gpu_names.h"

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
  EXPECT_EQ(CanonicalGpuName("NVIDIA H100 80GB HBM3", 85 * kGb), "H100-SXM");
  EXPECT_EQ(CanonicalGpuName("NVIDIA H100 PCIe", 85 * kGb), "H100-PCIe");
  EXPECT_EQ(CanonicalGpuName("NVIDIA H100 NVL", 100 * kGb), "H100-NVL");
  EXPECT_EQ(CanonicalGpuName("NVIDIA H200", 150 * kGb), "H200");
  EXPECT_EQ(CanonicalGpuName("NVIDIA A100-SXM4-80GB", 85 * kGb), "A100-80GB");
  EXPECT_EQ(CanonicalGpuName("NVIDIA A100-SXM4-40GB", 42 * kGb), "A100-40GB");
  EXPECT_EQ(CanonicalGpuName("NVIDIA GeForce RTX 4090", 25 * kGb), "RTX-4090");
  EXPECT_EQ(CanonicalGpuName("NVIDIA L4", 24 * kGb), "L4");
  EXPECT_EQ(CanonicalGpuName("NVIDIA L40S", 48 * kGb), "L40S");
  EXPECT_EQ(CanonicalGpuName("NVIDIA RTX A6000", 51 * kGb), "RTX-A6000");
  EXPECT_EQ(CanonicalGpuName("Banana 9000", kGb), "Banana 9000");
}

TEST(CanonicalGpuNameTest, KnowsRentalMarketsNames) {
  constexpr int64_t kGb = 1'000'000'000;
  const struct {
    const char* name;
    int64_t memory_bytes;
    const char* canonical;
  } cases[] = {
      {"NVIDIA A100 80GB PCIe", 80 * kGb, "A100-80GB"},
      {"NVIDIA A100-SXM4-80GB", 0, "A100-80GB"},
      {"NVIDIA RTX 6000 Ada Generation", 48 * kGb, "RTX-6000-Ada"},
      {"NVIDIA RTX PRO 4500 Blackwell", 32 * kGb, "RTX-PRO-4500"},
      {"Tesla V100-SXM2-32GB", 32 * kGb, "V100-32GB"},
      {"gpu_1x_h100_sxm5", 0, "H100-SXM"},
      {"H100 (80 GB SXM5)", 80 * kGb, "H100-SXM"},
      {"GH200 (96 GB)", 96 * kGb, "GH200"},
      {"A10 (24 GB PCIe)", 24 * kGb, "A10"},
      {"A100 (40 GB SXM4)", 40 * kGb, "A100-40GB"},
      {"gpu_8x_a100_80gb_sxm4", 0, "A100-80GB"},
      {"gpu_8x_a100", 0, "A100-40GB"},
      {"Quadro RTX 6000 (24 GB)", 24 * kGb, "RTX-6000"},
      {"H100 SXM", 81559LL << 20, "H100-SXM"},
      {"H100 PCIE", 81559LL << 20, "H100-PCIe"},
      {"A100 SXM4", 40960LL << 20, "A100-40GB"},
      {"A100 PCIE", 81920LL << 20, "A100-80GB"},
      {"RTX 6000Ada", 49140LL << 20, "RTX-6000-Ada"},
      {"RTX 4080S", 16376LL << 20, "RTX-4080-Super"},
      {"RTX 4090D", 24564LL << 20, "RTX-4090-D"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(CanonicalGpuName(c.name, c.memory_bytes), c.canonical) << c.name;
  }
}

TEST(ParseGpuRequirementTest, AFamilyTakesAllItsFormsAndAFormOnlyItself) {
  for (const char* text : {"H100-SXM", "H100 SXM", "h100_sxm", "H100 SXM5", "H100 80GB HBM3"}) {
    const auto sxm = ParseGpuRequirement(text);
    ASSERT_TRUE(sxm.ok()) << sxm.status();
    EXPECT_EQ(sxm->name, "H100-SXM") << text;
    EXPECT_TRUE(GpuSatisfies(*sxm, "H100-SXM", 1));
    EXPECT_FALSE(GpuSatisfies(*sxm, "H100-PCIe", 1));
    EXPECT_FALSE(GpuSatisfies(*sxm, "H100", 1));
  }
  const GpuRequirement any = *ParseGpuRequirement("H100");
  for (const char* form : {"H100", "H100-SXM", "H100-PCIe", "H100-NVL"}) {
    EXPECT_TRUE(GpuSatisfies(any, form, 1)) << form;
  }
  // Two models may have names that begin alike.
  EXPECT_FALSE(GpuSatisfies(*ParseGpuRequirement("4090"), "RTX-4090-D", 1));
  EXPECT_EQ(ParseGpuRequirement("A100 80GB")->name, "A100-80GB");
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
