#include "client/follow/stop_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/clock.h"
#include "common/job/lifecycle.h"
#include "tests/support/client_world.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Stops a run whose job ends with the first message that is sent. Returns what was said.
std::string StopOneIn(gpuctl::v1::JobState state) {
  ClientWorld world(Clock::Real());
  NodeScript& script = world.script("me@box:22");
  script.stop_state = state;
  std::string lifecycle;
  for (const auto type : {LifecycleEvent::Type::kStarted, LifecycleEvent::Type::kExited}) {
    LifecycleEvent event;
    event.type = type;
    event.attempt = 1;
    event.pid = 7;
    event.boot_id = "b-1";
    event.exit_code = 0;
    lifecycle += FormatLifecycleEvent(event);
  }
  gpuctl::v1::WatchReply& reply = script.watch.emplace_back();
  gpuctl::v1::Chunk& chunk = *reply.add_chunks();
  chunk.set_stream(gpuctl::v1::STREAM_LIFECYCLE);
  chunk.set_data(lifecycle);
  reply.mutable_heartbeat()->set_node_id("n-1");
  reply.set_complete(true);
  RunRow row;
  row.run_id = "r-1";
  row.name = "amber-fox-1";
  row.job_id = "j-1";
  row.target.provider = "ssh";
  row.target.name = "me@box:22";
  row.output_segment_bytes = 1 << 20;
  row.created_ms = 1;
  RunStore& store = *world.context.Store().value();
  EXPECT_OK(store.Insert(row));
  EXPECT_OK(store.SetAccepted("r-1", "n-1", 2));
  row = store.Get("r-1").value();
  ::testing::internal::CaptureStderr();
  EXPECT_OK(StopRun(world.context, store, row, /*wait=*/true));
  EXPECT_TRUE(row.end.has_value());
  return ::testing::internal::GetCapturedStderr();
}

TEST(StopRunTest, AJobThatIsOverIsNotSaidToBeWaitedFor) {
  EXPECT_THAT(StopOneIn(gpuctl::v1::JOB_STATE_FINISHED), Not(HasSubstr("waiting")));
  EXPECT_THAT(StopOneIn(gpuctl::v1::JOB_STATE_RUNNING), HasSubstr("waiting"));
}

// A launch that another gpuctl took for dead may only be slow.
TEST(StopRunTest, ARunThatNeverStartedMayNotStartEither) {
  ClientWorld world(Clock::Real());
  NodeScript& script = world.script("me@box:22");
  script.stop = absl::NotFoundError("the node has no such job");
  RunRow row;
  row.run_id = "r-1";
  row.name = "amber-fox-1";
  row.job_id = "j-1";
  row.target.provider = "ssh";
  row.target.name = "me@box:22";
  row.created_ms = 1;
  RunStore& store = *world.context.Store().value();
  EXPECT_OK(store.Insert(row));
  RunEnd never;
  never.source = EndSource::kGpuctl;
  never.exit_code = 1;
  EXPECT_OK(store.SetEnd("r-1", never));
  row = store.Get("r-1").value();
  EXPECT_OK(StopRun(world.context, store, row, /*wait=*/true));
  ASSERT_EQ(script.stops.size(), 1u);
  EXPECT_EQ(script.stops[0].job_id(), "j-1");
  EXPECT_TRUE(row.end.has_value());
  // A node that is gone prevents nothing, and hides nothing.
  script.connect = absl::UnavailableError("no route to host");
  ::testing::internal::CaptureStderr();
  EXPECT_OK(StopRun(world.context, store, row, /*wait=*/true));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("no route to host"));
}

TEST(StopRunTest, AJobThatIsOverWithoutAnEndIsNotSaidToHaveStopped) {
  ClientWorld world(Clock::Real());
  NodeScript& script = world.script("me@box:22");
  gpuctl::v1::WatchReply& reply = script.watch.emplace_back();
  reply.mutable_heartbeat()->set_node_id("n-1");
  reply.set_complete(true);
  RunRow row;
  row.run_id = "r-1";
  row.name = "amber-fox-1";
  row.job_id = "j-1";
  row.target.provider = "ssh";
  row.target.name = "me@box:22";
  row.output_segment_bytes = 1 << 20;
  row.created_ms = 1;
  RunStore& store = *world.context.Store().value();
  EXPECT_OK(store.Insert(row));
  EXPECT_OK(store.SetAccepted("r-1", "n-1", 2));
  row = store.Get("r-1").value();
  EXPECT_THAT(StopRun(world.context, store, row, /*wait=*/true),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("not how it ended")));
  EXPECT_FALSE(store.Get("r-1")->end.has_value());
}

}  // namespace
}  // namespace gpuctl
