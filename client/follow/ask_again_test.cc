// An end that gpuctl concluded, and the node that answers again.
#include "client/follow/ask_again.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "client/base/exit_codes.h"
#include "client/follow/catch_up.h"
#include "client/follow/stop_run.h"
#include "common/base/clock.h"
#include "common/base/link_fault.h"
#include "common/files/files.h"
#include "common/job/lifecycle.h"
#include "tests/support/client_world.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

constexpr char kBox[] = "me@box:22";

class AskAgainTest : public ::testing::Test {
 protected:
  AskAgainTest() : world_(Clock::Real()) {
    store_ = world_.context.Store().value();
    row_.run_id = "r-1";
    row_.name = "amber-fox-1";
    row_.job_id = "j-1";
    row_.target.provider = "ssh";
    row_.target.name = kBox;
    row_.output_segment_bytes = 1 << 20;
    row_.created_ms = 1;
    EXPECT_OK(store_->Insert(row_));
    EXPECT_OK(store_->SetAccepted("r-1", "n-1", 2));
    Answers("n-2");
    row_ = Stored();
    absl::Status error;
    EXPECT_OK(CatchUp(world_.context, *store_, row_, absl::Seconds(30), &error));
    EXPECT_EQ(Stored().end->state, gpuctl::v1::JOB_STATE_LOST);
  }
  RunRow Stored() { return store_->Get("r-1").value(); }
  NodeScript& Script() { return world_.script(kBox); }
  void Answers(const std::string& node_id) {
    Script().watch.assign(1, {});
    Script().watch[0].mutable_heartbeat()->set_node_id(node_id);
    Script().hello.set_node_id(node_id);
  }

  ClientWorld world_;
  RunStore* store_ = nullptr;
  RunRow row_;
};

TEST_F(AskAgainTest, TheSameNodeUndoesTheEnd) {
  Answers("n-1");
  EXPECT_OK(AskAgain(world_.context, *store_, row_));
  EXPECT_FALSE(row_.end.has_value());
  EXPECT_FALSE(Stored().end.has_value());
}

TEST_F(AskAgainTest, AnotherNodeAnUnknownJobAndNoAnswerLeaveTheEnd) {
  EXPECT_OK(AskAgain(world_.context, *store_, row_));
  EXPECT_TRUE(Stored().end.has_value());
  Answers("n-1");
  Script().watch.clear();
  Script().watch_end = absl::NotFoundError("no such job");
  EXPECT_OK(AskAgain(world_.context, *store_, row_));
  EXPECT_TRUE(Stored().end.has_value());
  Script().connect = absl::UnavailableError("connection refused");
  EXPECT_THAT(AskAgain(world_.context, *store_, row_), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(Stored().end.has_value());
  EXPECT_TRUE(row_.end.has_value());
}

// Whoever recorded the wrong end may have been killed before the job's own was recorded.
TEST_F(AskAgainTest, TheJobsOwnEndHereReplacesTheEndWithoutTheNode) {
  const std::string mirror = world_.context.Paths()->MirrorDir("r-1");
  LifecycleEvent exited;
  exited.type = LifecycleEvent::Type::kExited;
  exited.attempt = 1;
  EXPECT_OK(WriteFileAtomic(JoinPath(mirror, "lifecycle.jsonl"), FormatLifecycleEvent(exited)));
  const int connects = Script().connects;
  EXPECT_OK(AskAgain(world_.context, *store_, row_));
  EXPECT_EQ(row_.end->state, gpuctl::v1::JOB_STATE_FINISHED);
  EXPECT_EQ(Stored().end->state, gpuctl::v1::JOB_STATE_FINISHED);
  EXPECT_EQ(Script().connects, connects);
}

TEST_F(AskAgainTest, TheLossThatTheNodeToldStays) {
  const std::string mirror = world_.context.Paths()->MirrorDir("r-1");
  LifecycleEvent lost;
  lost.type = LifecycleEvent::Type::kLost;
  lost.attempt = 1;
  EXPECT_OK(WriteFileAtomic(JoinPath(mirror, "lifecycle.jsonl"), FormatLifecycleEvent(lost)));
  EXPECT_OK(AskAgain(world_.context, *store_, row_));
  EXPECT_TRUE(Stored().end.has_value());
}

TEST_F(AskAgainTest, AMachineThatWasGivenBackIsNoError) {
  Script().connect =
      WithFault(absl::UnavailableError("the machine was given back"), LinkFault::kReleased);
  EXPECT_OK(AskAgain(world_.context, *store_, row_));
  EXPECT_TRUE(Stored().end.has_value());
}

TEST_F(AskAgainTest, AnEndThatTheJobOrTheMarketToldIsNotAskedFor) {
  const int connects = Script().connects;
  for (const bool preempted : {true, false}) {
    row_.end->source = preempted ? EndSource::kGpuctl : EndSource::kJob;
    row_.end->cause = preempted ? EndCause::kPreempted : EndCause::kNone;
    EXPECT_OK(AskAgain(world_.context, *store_, row_));
  }
  EXPECT_EQ(Script().connects, connects);
}

TEST_F(AskAgainTest, AStopReachesTheJobThatWasTakenForLost) {
  Answers("n-1");
  EXPECT_OK(StopRun(world_.context, *store_, row_, /*wait=*/false));
  ASSERT_EQ(Script().stops.size(), 1u);
  EXPECT_EQ(Script().stops[0].job_id(), "j-1");
  EXPECT_FALSE(Stored().end.has_value());
}

TEST_F(AskAgainTest, ACatchUpBringsWhatTheJobWroteSince) {
  Answers("n-1");
  gpuctl::v1::WatchReply& reply = Script().watch[0];
  reply.mutable_heartbeat()->set_output_size(6);
  gpuctl::v1::Chunk& chunk = *reply.add_chunks();
  chunk.set_stream(gpuctl::v1::STREAM_OUTPUT);
  chunk.set_data("hello\n");
  absl::Status error;
  const auto caught = CatchUp(world_.context, *store_, row_, absl::Seconds(30), &error);
  ASSERT_OK(caught);
  EXPECT_EQ(*caught, Caught::kUp);
  EXPECT_OK(error);
}

}  // namespace
}  // namespace gpuctl
