#include "common/release/slurm_job.h"

#include <gtest/gtest.h>

namespace gpuctl {
namespace {

TEST(SlurmJobTest, IsANumberOrATaskOfOne) {
  EXPECT_EQ(ParseSlurmJob("17"), (SlurmJob{17, SlurmJob::kNoTask}));
  EXPECT_EQ(ParseSlurmJob("17_0"), (SlurmJob{17, 0}));
  EXPECT_EQ(ParseSlurmJob("17_1000"), (SlurmJob{17, 1000}));
  EXPECT_TRUE(ParseSlurmJob("17_0")->is_task());
  EXPECT_FALSE(ParseSlurmJob("17")->is_task());
  EXPECT_LT(*ParseSlurmJob("9"), *ParseSlurmJob("17"));
  EXPECT_LT(*ParseSlurmJob("17_9"), *ParseSlurmJob("17_10"));
}

TEST(SlurmJobTest, NothingElseIsOne) {
  for (const char* text : {"", "0", "_3", "17_", "17_[0-9]", "17_3_4", "17.batch", "17+1", "-17",
                           "17_-1", " 17", "17\n", "17;x", "123456789012"}) {
    EXPECT_FALSE(ParseSlurmJob(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace gpuctl
