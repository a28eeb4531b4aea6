#include "provisioning/market/gpu_models.h"

#include <gtest/gtest.h>

namespace gpuctl {
namespace {

constexpr int64_t kGb = 1'000'000'000;
constexpr int64_t kMib = 1 << 20;

TEST(GpuModels, AMarketAndADriverMeanTheSameCard) {
  const struct {
    const char* market;
    int64_t market_bytes;
    const char* driver;
    int64_t driver_mib;
  } kPairs[] = {
      // In the table.
      {"RTX 4090", 24 * kGb, "NVIDIA GeForce RTX 4090", 24564},
      {"NVIDIA GeForce RTX 4090", 24 * kGb, "NVIDIA GeForce RTX 4090", 24564},
      {"A100 SXM4", 80 * kGb, "NVIDIA A100-SXM4-80GB", 81920},
      {"A100 PCIE", 40 * kGb, "NVIDIA A100-PCIE-40GB", 40960},
      {"A100 (40 GB SXM4)", 40 * kGb, "NVIDIA A100-SXM4-40GB", 40960},
      {"H100 SXM", 80 * kGb, "NVIDIA H100 80GB HBM3", 81559},
      {"H100 (80 GB PCIe)", 80 * kGb, "NVIDIA H100 PCIe", 81559},
      {"H100 NVL", 94 * kGb, "NVIDIA H100 NVL", 95830},
      {"GH200 (96 GB)", 96 * kGb, "NVIDIA GH200 480GB", 97871},
      {"B200 (180 GB SXM6)", 180 * kGb, "NVIDIA B200", 183359},
      {"A6000 (48 GB)", 48 * kGb, "NVIDIA RTX A6000", 49140},
      {"RTX A6000", 48 * kGb, "NVIDIA RTX A6000", 49140},
      {"A10 (24 GB PCIe)", 24 * kGb, "NVIDIA A10", 23028},
      {"Quadro RTX 6000", 24 * kGb, "Quadro RTX 6000", 24576},
      {"RTX 6000 (24 GB)", 24 * kGb, "Quadro RTX 6000", 24576},
      {"Q RTX 8000", 48 * kGb, "Quadro RTX 8000", 49152},
      {"Tesla V100 (16 GB)", 16 * kGb, "Tesla V100-SXM2-16GB", 16160},
      {"Tesla T4", 16 * kGb, "Tesla T4", 15360},
      {"RTX 6000Ada", 48 * kGb, "NVIDIA RTX 6000 Ada Generation", 49140},
      {"L40S", 48 * kGb, "NVIDIA L40S", 46068},
      // Known by their words alone, or not at all.
      {"RTX 3060", 12 * kGb, "NVIDIA GeForce RTX 3060", 12288},
      {"RTX 3060 Ti", 8 * kGb, "NVIDIA GeForce RTX 3060 Ti", 8192},
      {"RTX 2080 Ti", 11 * kGb, "NVIDIA GeForce RTX 2080 Ti", 11264},
      {"RTX 4060 Ti", 16 * kGb, "NVIDIA GeForce RTX 4060 Ti", 16380},
      {"GTX 1080 Ti", 11 * kGb, "NVIDIA GeForce GTX 1080 Ti", 11264},
      {"A2", 16 * kGb, "NVIDIA A2", 15356},
      {"A16", 16 * kGb, "NVIDIA A16", 15356},
      {"Tesla P100", 16 * kGb, "Tesla P100-PCIE-16GB", 16384},
      {"Tesla P40", 24 * kGb, "Tesla P40", 24576},
      {"Titan RTX", 24 * kGb, "NVIDIA TITAN RTX", 24576},
      {"Titan V", 12 * kGb, "NVIDIA TITAN V", 12288},
      {"RTX A1000", 8 * kGb, "NVIDIA RTX A1000", 8188},
      {"CMP 170HX", 8 * kGb, "NVIDIA Graphics Device", 8192},
      {"RTX 3060", 0, "NVIDIA GeForce RTX 3060", 12288},
      {"AMD Instinct MI300X OAM", 192 * kGb, "AMD Instinct MI300X", 196592},
  };
  for (const auto& pair : kPairs) {
    EXPECT_TRUE(
        KeepsGpuPromise({pair.market, pair.market_bytes}, {pair.driver, pair.driver_mib * kMib}))
        << pair.market << " and " << pair.driver;
    // The market's name as an offer shows it.
    EXPECT_TRUE(
        KeepsGpuPromise({CanonicalGpuName(pair.market, pair.market_bytes), pair.market_bytes},
                        {pair.driver, pair.driver_mib * kMib}))
        << pair.market << " and " << pair.driver;
  }
}

TEST(GpuModels, AnotherCardBreaksThePromise) {
  const struct {
    const char* market;
    int64_t market_bytes;
    const char* driver;
    int64_t driver_mib;
  } kPairs[] = {
      {"B200", 180 * kGb, "NVIDIA H100 80GB HBM3", 81559},
      {"A100 SXM4", 80 * kGb, "NVIDIA A100-SXM4-40GB", 40960},
      {"RTX 4090", 24 * kGb, "NVIDIA GeForce GTX 1080", 8192},
      {"RTX 4090", 24 * kGb, "NVIDIA GeForce RTX 3090", 24576},
      {"RTX 4090", 24 * kGb, "NVIDIA GeForce RTX 4090 D", 24564},
      {"L40S", 48 * kGb, "NVIDIA L40", 46068},
      {"L4", 24 * kGb, "NVIDIA A10", 23028},
      {"RTX 3060", 12 * kGb, "NVIDIA GeForce RTX 3060 Ti", 8192},
      {"RTX 2080 Ti", 11 * kGb, "NVIDIA GeForce RTX 2080", 8192},
      {"RTX 2080", 8 * kGb, "NVIDIA GeForce RTX 2070", 8192},
      {"RTX 3060", 12 * kGb, "NVIDIA GeForce RTX 4090", 24564},
      {"A16", 16 * kGb, "NVIDIA A2", 2048},
      {"A100 SXM4", 80 * kGb, "NVIDIA RTX A1000", 8188},
      {"H100 SXM", 80 * kGb, "", 0},
  };
  for (const auto& pair : kPairs) {
    EXPECT_FALSE(
        KeepsGpuPromise({pair.market, pair.market_bytes}, {pair.driver, pair.driver_mib * kMib}))
        << pair.market << " and " << pair.driver;
  }
}

TEST(GpuModels, WhatMarketsRentCanBeAskedForByName) {
  const struct {
    const char* typed;
    const char* name;
    const char* market;
  } kRows[] = {
      {"RTX 3060", "RTX-3060", "RTX 3060"},
      {"3060", "RTX-3060", "NVIDIA GeForce RTX 3060"},
      {"rtx-3060-ti", "RTX-3060-Ti", "RTX 3060 Ti"},
      {"2080 Ti", "RTX-2080-Ti", "RTX 2080 Ti"},
      {"1080ti", "GTX-1080-Ti", "GTX 1080 Ti"},
      {"RTX 4070 Super", "RTX-4070-Super", "RTX 4070S"},
      {"Tesla P100", "P100", "Tesla P100"},
      {"P100", "P100", "Tesla P100-PCIE-16GB"},
      {"P40", "P40", "Tesla P40"},
      {"A2", "A2", "NVIDIA A2"},
      {"a16", "A16", "NVIDIA A16"},
      {"Titan V", "Titan-V", "NVIDIA TITAN V"},
      {"T4", "T4", "Tesla T4"},
  };
  for (const auto& row : kRows) {
    EXPECT_EQ(FindGpuName(row.typed), row.name) << row.typed;
    EXPECT_EQ(CanonicalGpuName(row.market, 0), row.name) << row.market;
  }
  EXPECT_EQ(CanonicalGpuName("CMP 40HX", 8 * kGb), "CMP 40HX");
  EXPECT_EQ(CanonicalGpuName("NVIDIA GeForce RTX 3070 Laptop GPU", 8 * kGb),
            "NVIDIA GeForce RTX 3070 Laptop GPU");
}

TEST(GpuModels, ANumberEndsWhereTheNameEnds) {
  EXPECT_EQ(CanonicalGpuName("NVIDIA RTX A1000", 8 * kGb), "NVIDIA RTX A1000");
  EXPECT_EQ(CanonicalGpuName("NVIDIA RTX A4000", 16 * kGb), "RTX-A4000");
  EXPECT_EQ(CanonicalGpuName("NVIDIA A40", 48 * kGb), "A40");
  EXPECT_EQ(CanonicalGpuName("NVIDIA T400 4GB", 4 * kGb), "NVIDIA T400 4GB");
  EXPECT_EQ(CanonicalGpuName("gpu_1x_gh200", 0), "GH200");
  EXPECT_EQ(CanonicalGpuName("NVIDIA H100 80GB HBM3", 0), "H100-SXM");
}

}  // namespace
}  // namespace gpuctl
