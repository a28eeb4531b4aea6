#include "common/release/release_route.h"

#include <gtest/gtest.h>

namespace gpuctl {
namespace {

TEST(ReleaseRouteTest, MarketsThatGiveAKey) {
  const ReleaseRoute& runpod = ReleaseRouteOf("runpod");
  EXPECT_EQ(runpod.way, EndsItself::kByKey);
  EXPECT_EQ(ReleasePath(runpod, "pod1"), "/v2/pods/pod1/action");
  const ReleaseRoute& vast = ReleaseRouteOf("vast");
  EXPECT_EQ(vast.way, EndsItself::kByKey);
  EXPECT_EQ(ReleasePath(vast, "12"), "/api/v0/instances/12/");
  EXPECT_EQ(vast.body, "");
}

TEST(ReleaseRouteTest, OnlyATestsMachineHasAnotherCommand) {
  EXPECT_EQ(ReleaseRouteOf("test-exit").way, EndsItself::kByExit);
  EXPECT_EQ(ReleaseRouteOf("test-shutdown").way, EndsItself::kByShutdown);
  EXPECT_EQ(ShutdownCommand(ReleaseRouteOf("test-shutdown")), "gpuctl-test-shutdown");
  EXPECT_EQ(ShutdownCommand({"some", EndsItself::kByShutdown}),
            "shutdown -h now || systemctl poweroff || poweroff");
}

TEST(ReleaseRouteTest, AnAllocationOfSlurmEndsWithItsScript) {
  EXPECT_EQ(ReleaseRouteOf("slurm").way, EndsItself::kByExit);
}

TEST(ReleaseRouteTest, OthersHaveNoWay) {
  EXPECT_EQ(ReleaseRouteOf("lambda").way, EndsItself::kNo);
  EXPECT_EQ(ReleaseRouteOf("").way, EndsItself::kNo);
}

}  // namespace
}  // namespace gpuctl
