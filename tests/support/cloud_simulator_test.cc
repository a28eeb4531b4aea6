#include "tests/support/cloud_simulator.h"

#include <gtest/gtest.h>

#include <thread>

namespace gpuctl {
namespace {

const nlohmann::json kPod = {{"name", "gpuctl-test"},
                             {"image", "image"},
                             {"gpu", {{"id", "NVIDIA GeForce RTX 4090"}, {"count", 1}}}};

TEST(CloudSimulatorTest, RentsBillsAndEnds) {
  const CloudSimulator cloud({"--no-nodes", "--boot-s", "0"});
  cloud.Freeze();
  const std::string key = CloudSimulator::Key("runpod");
  const auto made = cloud.Request("POST", "/runpod/v2/pods", kPod, key);
  ASSERT_EQ(made.status, 201);
  EXPECT_EQ(cloud.Alive(), 1);
  cloud.Advance(3600);
  EXPECT_NEAR(cloud.Books()["instances"][0]["billed_usd"].get<double>(), 0.74 + 20 * 0.1 / 720,
              1e-9);
  const std::string path = "/runpod/v2/pods/" + made.json["id"].get<std::string>();
  EXPECT_EQ(cloud.Request("DELETE", path, nullptr, key).status, 204);
  EXPECT_EQ(cloud.Alive(), 0);
}

TEST(CloudSimulatorTest, HoldsARequestAndDropsIt) {
  const CloudSimulator cloud({"--no-nodes"});
  const int hold = cloud.Hold({{"service", "runpod"}, {"route", "create"}, {"phase", "after"}});
  int status = -1;
  std::thread client([&] {
    status = cloud.Request("POST", "/runpod/v2/pods", kPod, CloudSimulator::Key("runpod")).status;
  });
  cloud.WaitHold(hold);
  EXPECT_EQ(cloud.Alive(), 1);
  cloud.Release(hold, /*drop=*/true);
  client.join();
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace gpuctl
