#include "client/follow/cluster_end.h"

#include <gtest/gtest.h>

#include "client/base/exit_codes.h"
#include "client/runs/run_status.h"

namespace gpuctl {
namespace {

// The end of a job that its holder stopped, and that saved.
RunEnd Saved() {
  RunEnd end;
  end.state = gpuctl::v1::JOB_STATE_FINISHED;
  end.job_code = 0;
  end.reason = "the allocation ends";
  return end;
}

TEST(ClusterEnd, SlurmsWordIsTheReasonAndItsMeaningTheCause) {
  const RunEnd limit = EndByWords("TIMEOUT (it ended when Slurm warned it, with 1m left)", Saved());
  EXPECT_EQ(limit.reason, "Slurm: TIMEOUT (it ended when Slurm warned it, with 1m left)");
  EXPECT_EQ(limit.cause, EndCause::kLimit);
  EXPECT_EQ(limit.exit_code, kExitLimit);
  EXPECT_EQ(limit.job_code, 0);
  const RunEnd cancelled = EndByWords("CANCELLED by ada", Saved());
  EXPECT_EQ(cancelled.cause, EndCause::kUser);
  EXPECT_EQ(cancelled.exit_code, 0);
  EXPECT_EQ(DescribeEnd(cancelled), "ended by Slurm: CANCELLED by ada; exited with code 0");
  for (const char* taken : {"PREEMPTED", "NODE_FAIL", "FAILED (it could not be started again)"}) {
    const RunEnd end = EndByWords(taken, Saved());
    EXPECT_TRUE(IsPreempted(end)) << taken;
    EXPECT_EQ(end.state, gpuctl::v1::JOB_STATE_LOST) << taken;
    EXPECT_EQ(end.exit_code, kExitLost) << taken;
  }
  RunEnd killed = Saved();
  killed.job_code = killed.exit_code = 137;
  killed.reason.clear();
  const RunEnd memory = EndByWords("OUT_OF_MEMORY", killed);
  EXPECT_EQ(memory.exit_code, 137);
  EXPECT_EQ(DescribeEnd(memory), "ended by Slurm: OUT_OF_MEMORY; exited with code 137");
}

TEST(ClusterEnd, AnAllocationThatEndedByItselfDoesNotExplainWhyItsRunWasKilledOrLost) {
  RunEnd lost;
  lost.state = gpuctl::v1::JOB_STATE_LOST;
  lost.exit_code = kExitLost;
  lost.reason = "the shim died";
  RunEnd killed;
  killed.state = gpuctl::v1::JOB_STATE_FINISHED;
  killed.job_code = killed.exit_code = 137;
  for (const RunEnd& before : {lost, killed}) {
    for (const char* words : {"COMPLETED", "FAILED"}) {
      const RunEnd end = EndByWords(words, before);
      EXPECT_EQ(end.reason, before.reason) << words;
      EXPECT_EQ(end.cause, before.cause) << words;
      EXPECT_EQ(end.exit_code, before.exit_code) << words;
    }
    EXPECT_EQ(EndByWords("CANCELLED by ada", before).cause, EndCause::kUser);
    EXPECT_EQ(EndByWords("TIMEOUT", before).cause, EndCause::kLimit);
  }
  EXPECT_EQ(EndByWords("COMPLETED", Saved()).cause, EndCause::kUser);
  EXPECT_TRUE(IsPreempted(EndByWords("FAILED (it could not be started again)", lost)));
  EXPECT_FALSE(IsPreempted(EndByWords("FAILED (it could not be started again)", killed)));
}

TEST(ClusterEnd, WithoutAWordTheEndStays) {
  EXPECT_EQ(EndByWords("", Saved()).reason, "the allocation ends");
}

TEST(ClusterEnd, OnlyAnEndThatTheAllocationMayHaveCausedIsAskedAbout) {
  EXPECT_TRUE(MayBeOfAllocation(Saved()));
  // Some clusters tell every process.
  RunEnd own = Saved();
  own.reason = "shutdown";
  EXPECT_TRUE(MayBeOfAllocation(own));
  own.reason = "";
  EXPECT_FALSE(MayBeOfAllocation(own));
  own.reason = "user";
  EXPECT_FALSE(MayBeOfAllocation(own));
  own.reason = "";
  own.job_code = 137;
  EXPECT_TRUE(MayBeOfAllocation(own));
  RunEnd lost;
  lost.state = gpuctl::v1::JOB_STATE_LOST;
  EXPECT_TRUE(MayBeOfAllocation(lost));
  // Slurm would say FAILED, or COMPLETED, of the start that came to nothing.
  lost.reason = "not started again: no room";
  EXPECT_FALSE(MayBeOfAllocation(lost));
  EXPECT_FALSE(MayBeOfAllocation(RunEnd()));
}

}  // namespace
}  // namespace gpuctl
