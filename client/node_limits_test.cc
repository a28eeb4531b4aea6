#include "client/node_limits.h"

#include <gtest/gtest.h>

namespace gpuctl {
namespace {

LeaseFacts Lease() {
  LeaseFacts lease;
  lease.lease_id = "l-1";
  lease.provider = "runpod";
  lease.instance_id = "pod1";
  lease.release_base_url = "https://api.test";
  lease.rate_usd_per_hour = 2;
  lease.spent_usd = 0.5;
  return lease;
}

TEST(MakeNodeLimitsTest, WithoutACostTheTimeAndTheSalvageArePaid) {
  AgreedLimits agreed;
  agreed.grace = absl::Hours(1);
  const auto limits = MakeNodeLimits(agreed, Lease(), 1234);
  EXPECT_EQ(limits.revision(), 1234);
  EXPECT_DOUBLE_EQ(limits.cost_usd(), 0.5 + 2 * (24 + 1 + 24));
  EXPECT_EQ(limits.idle_s(), 600);
  EXPECT_EQ(limits.salvage_s(), 24 * 3600);
  EXPECT_EQ(limits.lease_s(), 72 * 3600);
  EXPECT_EQ(limits.grace_ms(), 3'600'000);
  EXPECT_TRUE(limits.self_release());
}

TEST(MakeNodeLimitsTest, AnExplicitCostShortensSalvageToAThirdOfIt) {
  AgreedLimits agreed;
  agreed.cost_usd = 12;
  const auto limits = MakeNodeLimits(agreed, Lease(), 1);
  EXPECT_DOUBLE_EQ(limits.cost_usd(), 12);
  EXPECT_EQ(limits.salvage_s(), 2 * 3600);
  agreed.cost_usd = 1000;
  EXPECT_EQ(MakeNodeLimits(agreed, Lease(), 1).salvage_s(), 24 * 3600);
  agreed.cost_usd = 0.000001;
  EXPECT_EQ(MakeNodeLimits(agreed, Lease(), 1).salvage_s(), 1) << "0 would be no limit";
}

TEST(MakeNodeLimitsTest, LambdasMachinesCannotReleaseThemselves) {
  LeaseFacts lease = Lease();
  lease.provider = "lambda";
  EXPECT_FALSE(MakeNodeLimits(AgreedLimits(), lease, 1).self_release());
}

TEST(IsJobOverTest, OnlyWhatHasFinishedIs) {
  gpuctl::v1::HelloReply node;
  gpuctl::v1::Job& job = *node.add_jobs();
  job.set_job_id("j1");
  job.set_state(gpuctl::v1::JOB_STATE_RETRY_WAIT);
  EXPECT_FALSE(IsJobOver(node, "j1"));
  job.set_state(gpuctl::v1::JOB_STATE_FINISHED);
  EXPECT_TRUE(IsJobOver(node, "j1"));
  EXPECT_FALSE(IsJobOver(node, "j2"));
}

}  // namespace
}  // namespace gpuctl
