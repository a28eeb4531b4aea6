#include "client/launch/launch.h"

#include <gtest/gtest.h>

#include "common/job/job_layout.h"

namespace gpuctl {
namespace {

TEST(BeginLaunchTest, GivesThePlansRunItsMachineAndItsRequest) {
  LaunchPlan plan;
  plan.row.run_id = "r-1";
  plan.row.name = "amber-fox-1";
  plan.job.set_job_id("j-1");
  plan.job.add_argv("/bin/true");
  plan.secrets = {{"TOKEN", "s3cret"}};
  NodeTarget target;
  target.name = "vast/i-001";

  const Launch launch = BeginLaunch(plan, target);
  EXPECT_EQ(launch.row.target.name, "vast/i-001");
  EXPECT_EQ(launch.row.run_id, "r-1");
  EXPECT_EQ(launch.start.spec().argv(0), "/bin/true");
  EXPECT_EQ(launch.start.spec_digest(), SpecDigest(plan.job));
  EXPECT_EQ(launch.start.secrets().at("TOKEN"), "s3cret");
  // The list of runs gets the request's spec without its secrets.
  EXPECT_EQ(launch.row.spec_json.find("s3cret"), std::string::npos);
  EXPECT_NE(launch.row.spec_json.find(launch.start.spec_digest()), std::string::npos);
  // The plan does not change: another machine may be tried with it.
  EXPECT_EQ(plan.row.target.name, "");
}

}  // namespace
}  // namespace gpuctl
