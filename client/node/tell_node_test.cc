#include "client/node/tell_node.h"

#include <gtest/gtest.h>

namespace gpuctl {
namespace {

Lease TestLease() {
  Lease lease;
  lease.lease_id = "l-1";
  lease.provider = "runpod";
  lease.instance_id = "pod1";
  lease.intended_ms = 77;
  lease.rates = {{0, 0, 2.0}};
  lease.limits.idle_s = 600;
  lease.limits.salvage_s = 7200;
  lease.limits.contact_s = 9000;
  lease.limits.cost_usd = 12;
  return lease;
}

TEST(MakeNodeLimitsTest, SaysWhatTheLeaseSays) {
  NodeLimitFacts facts;
  facts.release_base_url = "https://api.test";
  facts.self_release = true;
  facts.spent_usd = 0.5;
  facts.grace = absl::Hours(1);
  const gpuctl::v1::NodeLimits limits = MakeNodeLimits(TestLease(), facts, 1234);
  EXPECT_EQ(limits.revision(), 1234);
  EXPECT_EQ(limits.instance_id(), "pod1");
  EXPECT_EQ(limits.release_base_url(), "https://api.test");
  EXPECT_DOUBLE_EQ(limits.rate_usd_per_hour(), 2);
  EXPECT_DOUBLE_EQ(limits.spent_before_usd(), 0.5);
  EXPECT_DOUBLE_EQ(limits.cost_usd(), 12);
  EXPECT_EQ(limits.idle_s(), 600);
  EXPECT_EQ(limits.salvage_s(), 7200);
  EXPECT_EQ(limits.lease_s(), 9000);
  EXPECT_EQ(limits.grace_ms(), 3'600'000);
  EXPECT_EQ(limits.billing_started_ms(), 77);
  EXPECT_TRUE(limits.self_release());
}

TEST(MakeNodeLimitsTest, NoSalvageAtAllIsStillALimit) {
  Lease lease = TestLease();
  lease.limits.salvage_s = 0;
  EXPECT_EQ(MakeNodeLimits(lease, {}, 1).salvage_s(), 1) << "0 would be no limit";
  EXPECT_FALSE(MakeNodeLimits(lease, {}, 1).self_release());
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
