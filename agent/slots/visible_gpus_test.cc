#include "agent/slots/visible_gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<gpuctl::v1::Gpu> Gpus(const std::vector<std::string>& uuids) {
  std::vector<gpuctl::v1::Gpu> gpus;
  for (const std::string& uuid : uuids) {
    gpuctl::v1::Gpu& gpu = gpus.emplace_back();
    gpu.set_index(static_cast<int>(gpus.size()) - 1);
    gpu.set_uuid(uuid);
  }
  return gpus;
}

TEST(VisibleGpus, AreAllWithoutTheVariable) {
  EXPECT_THAT(VisibleGpus(Gpus({"GPU-a", "GPU-b"}), std::nullopt), ElementsAre("GPU-a", "GPU-b"));
  EXPECT_THAT(VisibleGpus({}, std::nullopt), IsEmpty());
}

TEST(VisibleGpus, HaveAnIndexWhereTheDriverTellsNoUuid) {
  EXPECT_THAT(VisibleGpus(Gpus({"", "GPU-b"}), std::nullopt), ElementsAre("0", "GPU-b"));
  EXPECT_THAT(VisibleGpus(Gpus({"", ""}), "1"), ElementsAre("1"));
}

TEST(VisibleGpus, AreThoseThatTheVariableNames) {
  const auto gpus = Gpus({"GPU-a1", "GPU-b1", "GPU-c1"});
  EXPECT_THAT(VisibleGpus(gpus, "2, 0"), ElementsAre("GPU-c1", "GPU-a1"));
  EXPECT_THAT(VisibleGpus(gpus, "GPU-b1,GPU-a"), ElementsAre("GPU-b1", "GPU-a1"));
  EXPECT_THAT(VisibleGpus(gpus, "1,1"), ElementsAre("GPU-b1"));
}

TEST(VisibleGpus, EndAtTheFirstEntryThatNamesNone) {
  const auto gpus = Gpus({"GPU-a", "GPU-b"});
  EXPECT_THAT(VisibleGpus(gpus, "0,-1,1"), ElementsAre("GPU-a"));
  EXPECT_THAT(VisibleGpus(gpus, "0,7,1"), ElementsAre("GPU-a"));
  for (const char* none : {"", "-1", "NoDevFiles", "void", ",0"}) {
    EXPECT_THAT(VisibleGpus(gpus, none), IsEmpty()) << none;
  }
}

TEST(VisibleGpus, TakePartsOfGpusAsTheyAre) {
  EXPECT_THAT(VisibleGpus(Gpus({"GPU-a"}), "MIG-1,MIG-2"), ElementsAre("MIG-1", "MIG-2"));
}

}  // namespace
}  // namespace gpuctl
