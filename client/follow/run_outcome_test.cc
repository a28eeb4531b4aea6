#include "client/follow/run_outcome.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <memory>
#include <string>

#include "client/base/exit_codes.h"
#include "client/runs/run_end.h"
#include "common/base/fake_clock.h"
#include "common/base/ids.h"
#include "common/base/link_fault.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

class RunOutcome : public ::testing::Test {
 protected:
  RunOutcome() : context_(clock_) {
    setenv("GPUCTL_STATE_DIR", dir_.path().c_str(), 1);
    store_ = context_.Store().value();
  }
  ~RunOutcome() override { unsetenv("GPUCTL_STATE_DIR"); }

  // Returns the end recorded for a run that was followed with this result, if any.
  std::optional<RunEnd> EndAfter(const absl::Status& result, bool accepted) {
    RunRow row;
    row.run_id = NewRunId();
    row.name = "run";
    row.job_id = NewJobId();
    row.output_segment_bytes = 1 << 20;
    row.accepted_ms = accepted ? 1 : 0;
    EXPECT_OK(store_->Insert(row));
    EXPECT_OK(RecordOutcome(context_, *store_, row, result));
    const std::optional<RunEnd> stored = store_->Get(row.run_id)->end;
    EXPECT_EQ(stored.has_value(), row.end.has_value());
    return stored;
  }

  TempDir dir_;
  FakeClock clock_;
  CommandContext context_;
  RunStore* store_ = nullptr;
};

TEST_F(RunOutcome, AMachineThatWasTakenAwayIsAFaultAndNoWords) {
  const absl::Status words = absl::NotFoundError("preempted: outbid");
  for (const bool accepted : {true, false}) {
    const auto taken = EndAfter(WithFault(words, LinkFault::kPreempted), accepted);
    ASSERT_TRUE(taken.has_value());
    EXPECT_TRUE(IsPreempted(*taken));
    EXPECT_EQ(taken->state, gpuctl::v1::JOB_STATE_LOST);
    EXPECT_EQ(taken->exit_code, kExitLost);
    EXPECT_EQ(taken->reason, "preempted: outbid");
  }
  const auto lost = EndAfter(words, /*accepted=*/true);
  ASSERT_TRUE(lost.has_value());
  EXPECT_FALSE(IsPreempted(*lost));
  EXPECT_EQ(lost->state, gpuctl::v1::JOB_STATE_LOST);
  const auto never = EndAfter(words, /*accepted=*/false);
  ASSERT_TRUE(never.has_value());
  EXPECT_FALSE(IsPreempted(*never));
  EXPECT_EQ(never->state, gpuctl::v1::JOB_STATE_UNSPECIFIED);
}

TEST_F(RunOutcome, OnlyALostJobHasAnEnd) {
  EXPECT_FALSE(EndAfter(absl::UnavailableError("no link"), true).has_value());
  EXPECT_FALSE(EndAfter(absl::OkStatus(), true).has_value());
}

}  // namespace
}  // namespace gpuctl
