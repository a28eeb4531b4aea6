#include "client/base/gpu_memory.h"

#include <gtest/gtest.h>

namespace gpuctl {
namespace {

TEST(FormatGpuMemoryTest, ACardHasTheMemoryThatItIsSoldWith) {
  EXPECT_EQ(FormatGpuMemory(int64_t{24564} << 20), "24.0 GB");  // an RTX 4090, as its driver tells
  EXPECT_EQ(FormatGpuMemory(int64_t{24576} << 20), "24.0 GB");
  EXPECT_EQ(FormatGpuMemory(int64_t{81559} << 20), "79.6 GB");  // an H100
  EXPECT_EQ(FormatGpuMemory(int64_t{23034} << 20), "22.5 GB");  // an L4 with ECC
  EXPECT_EQ(FormatGpuMemory(80'000'000'000), "80.0 GB");        // a market's "80 GB"
}

}  // namespace
}  // namespace gpuctl
