// A run brought up to date: what the mirror gets, and what the list of runs says then.
#include "client/follow/catch_up.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "client/base/exit_codes.h"
#include "client/streams/follower.h"
#include "client/streams/mirror.h"
#include "client/streams/mirror_reader.h"
#include "common/base/clock.h"
#include "common/base/link_fault.h"
#include "common/files/files.h"
#include "common/job/lifecycle.h"
#include "tests/support/client_world.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

constexpr char kNode[] = "me@box:22";
constexpr absl::Duration kPatience = absl::Seconds(30);

class CatchUpTest : public ::testing::Test {
 protected:
  CatchUpTest() : world_(Clock::Real()) {
    store_ = world_.context.Store().value();
    row_.run_id = "r-1";
    row_.name = "amber-fox-1";
    row_.job_id = "j-1";
    row_.target.provider = "ssh";
    row_.target.name = kNode;
    row_.output_segment_bytes = 1 << 20;
    row_.created_ms = 1;
    EXPECT_OK(store_->Insert(row_));
    EXPECT_OK(store_->SetAccepted("r-1", "n-1", 2));
    row_ = Stored();
  }
  RunRow Stored() { return store_->Get("r-1").value(); }
  NodeScript& Script() { return world_.script(kNode); }
  absl::StatusOr<Caught> Catch(RunRow& row, absl::Duration give_up_after = kPatience) {
    error_ = absl::OkStatus();
    return CatchUp(world_.context, *store_, row, give_up_after, &error_);
  }
  void Add(gpuctl::v1::WatchReply& reply, gpuctl::v1::Stream stream, int64_t offset,
           const std::string& data) {
    gpuctl::v1::Chunk& chunk = *reply.add_chunks();
    chunk.set_stream(stream);
    chunk.set_offset(offset);
    chunk.set_data(data);
  }
  // A message of the job, with a heartbeat that tells how much output there is in all.
  gpuctl::v1::WatchReply& Says(int64_t offset, const std::string& output, int64_t in_all) {
    gpuctl::v1::WatchReply& reply = Script().watch.emplace_back();
    if (offset == 0) Add(reply, gpuctl::v1::STREAM_LIFECYCLE, 0, Started());
    Add(reply, gpuctl::v1::STREAM_OUTPUT, offset, output);
    reply.mutable_heartbeat()->set_node_id("n-1");
    reply.mutable_heartbeat()->set_output_size(in_all);
    return reply;
  }
  void JobEnds(int code) {
    gpuctl::v1::WatchReply& reply = Says(0, "hello\n", 6);
    LifecycleEvent exited;
    exited.type = LifecycleEvent::Type::kExited;
    exited.attempt = 1;
    exited.exit_code = code;
    exited.output_size = 6;
    exited.time_ms = 1234;
    const auto at = static_cast<int64_t>(Started().size());
    Add(reply, gpuctl::v1::STREAM_LIFECYCLE, at, FormatLifecycleEvent(exited));
    reply.set_complete(true);
  }
  static std::string Started() {
    LifecycleEvent started;
    started.attempt = 1;
    started.pid = 7;
    started.boot_id = "b-1";
    return FormatLifecycleEvent(started);
  }
  int64_t OutputSize() {
    MirrorReader mirror(MirrorDir(), row_.output_segment_bytes);
    return mirror.OutputExtent().value().size;
  }
  std::string MirrorDir() { return world_.context.Paths().value().MirrorDir("r-1"); }

  ClientWorld world_;
  RunStore* store_ = nullptr;
  RunRow row_;
  absl::Status error_;
  std::thread interrupter_;
  std::atomic<bool> over_{false};
};

TEST_F(CatchUpTest, TheMirrorGetsWhatTheNodeHadWhenItWasAsked) {
  Says(0, "hello\n", 12);
  Says(6, "world\n", 12);
  const auto caught = Catch(row_);
  ASSERT_OK(caught);
  EXPECT_EQ(*caught, Caught::kUp);
  EXPECT_OK(error_);
  EXPECT_EQ(OutputSize(), 12);
  EXPECT_FALSE(row_.end.has_value());
  EXPECT_FALSE(Stored().end.has_value());
  EXPECT_GT(Stored().heard_ms, 2);
}

TEST_F(CatchUpTest, AJobThatIsOverIsRecordedWithItsCode) {
  JobEnds(3);
  const auto caught = Catch(row_);
  ASSERT_OK(caught);
  EXPECT_EQ(*caught, Caught::kOver);
  EXPECT_EQ(OutputSize(), 6);
  for (const RunRow& row : {row_, Stored()}) {
    ASSERT_TRUE(row.end.has_value());
    EXPECT_EQ(row.end->state, gpuctl::v1::JOB_STATE_FINISHED);
    EXPECT_EQ(row.end->exit_code, 3);
    EXPECT_EQ(row.end->ended_ms, 1234);
  }
}

TEST_F(CatchUpTest, AnEndIsRecordedOnceAndTheNodeNotAskedAgain) {
  RunRow stale = row_;
  RunRow later = row_;
  JobEnds(3);
  ASSERT_OK(Catch(row_));
  EXPECT_EQ(Script().connects, 1);
  const auto again = Catch(row_);
  ASSERT_OK(again);
  EXPECT_EQ(*again, Caught::kOver);
  // Another process has a row from before; all is here, so that it needs no node either.
  Script().connect = absl::UnavailableError("gone");
  const auto caught = Catch(stale);
  ASSERT_OK(caught);
  EXPECT_EQ(*caught, Caught::kOver);
  ASSERT_TRUE(stale.end.has_value());
  EXPECT_EQ(Script().connects, 1);
  // What is recorded stays, also when the mirror is gone and the node does not know the job.
  ASSERT_OK(RemoveTree(MirrorDir()));
  Script().connect = absl::OkStatus();
  Script().watch.clear();
  Script().watch_end = absl::NotFoundError("no such job");
  ASSERT_OK(Catch(later));
  EXPECT_EQ(Script().connects, 2);
  EXPECT_EQ(Stored().end->exit_code, 3);
}

TEST_F(CatchUpTest, ANodeThatCannotBeReachedLeavesTheRunAsItIs) {
  Script().connect = absl::UnavailableError("connection refused");
  const auto caught = Catch(row_, absl::Milliseconds(300));
  ASSERT_OK(caught);
  EXPECT_EQ(*caught, Caught::kNot);
  EXPECT_THAT(error_, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("connection refused")));
  EXPECT_GT(Script().connects, 1);
  EXPECT_FALSE(row_.end.has_value());
  EXPECT_FALSE(Stored().end.has_value());
}

TEST_F(CatchUpTest, ARunThatHasEndedCostsNothing) {
  row_.end.emplace();
  const auto caught = Catch(row_);
  ASSERT_OK(caught);
  EXPECT_EQ(*caught, Caught::kOver);
  EXPECT_FALSE(world_.known(kNode));
}

TEST_F(CatchUpTest, AJobThatAnotherNodeDoesNotKnowIsLost) {
  Says(0, "hello\n", 6).mutable_heartbeat()->set_node_id("n-2");
  const auto caught = Catch(row_);
  ASSERT_OK(caught);
  EXPECT_EQ(*caught, Caught::kOver);
  EXPECT_THAT(error_, StatusIs(absl::StatusCode::kNotFound, HasSubstr("the job is lost")));
  ASSERT_TRUE(Stored().end.has_value());
  EXPECT_EQ(Stored().end->state, gpuctl::v1::JOB_STATE_LOST);
  EXPECT_EQ(Stored().end->exit_code, kExitLost);
  // Nothing of the other node's is taken for the job's.
  EXPECT_EQ(OutputSize(), 0);
}

TEST_F(CatchUpTest, AMirrorThatWasCutShortAfterTheEndIsFilledAgain) {
  JobEnds(3);
  ASSERT_OK(Catch(row_));
  ASSERT_OK(RemoveTree(MirrorPaths(MirrorDir()).output));
  ASSERT_EQ(OutputSize(), 0);
  const auto caught = Catch(row_);
  ASSERT_OK(caught);
  EXPECT_EQ(*caught, Caught::kOver);
  EXPECT_OK(error_);
  EXPECT_EQ(OutputSize(), 6);
  // The rest stays here when the node is gone.
  ASSERT_OK(RemoveTree(MirrorPaths(MirrorDir()).output));
  Script().connect = absl::UnavailableError("gone");
  const auto without = Catch(row_, absl::Milliseconds(300));
  ASSERT_OK(without);
  EXPECT_EQ(*without, Caught::kNot);
  EXPECT_EQ(Stored().end->exit_code, 3);
}

TEST_F(CatchUpTest, StoredBytesThatAreNotTheNodesAreTold) {
  Says(0, "hello\n", 6);
  ASSERT_OK(Catch(row_));
  Script().watch.clear();
  gpuctl::v1::WatchReply& reply = Says(0, "other\n", 6);
  gpuctl::v1::StreamHeader& header = *reply.add_headers();
  header.set_stream(gpuctl::v1::STREAM_OUTPUT);
  header.set_diverged(true);
  ::testing::internal::CaptureStderr();
  const auto caught = Catch(row_);
  const std::string told = ::testing::internal::GetCapturedStderr();
  ASSERT_OK(caught);
  EXPECT_THAT(told, HasSubstr("6 stored bytes were set aside"));
}

TEST_F(CatchUpTest, CtrlCEndsItAndRecordsNothing) {
  Says(0, "hello\n", 12);  // the rest never comes
  world_.context.make_links = [this](const NodeTarget& target) {
    // Signals are caught before the node is asked.
    interrupter_ = std::thread([self = pthread_self(), this] {
      while (!over_ && Script().watches == 0) {
        Clock::Real().SleepFor(absl::Milliseconds(1));
      }
      if (!over_) pthread_kill(self, SIGINT);
    });
    return world_.node(target.name).Links();
  };
  const auto caught = Catch(row_);
  over_ = true;
  if (interrupter_.joinable()) interrupter_.join();
  EXPECT_THAT(caught.status(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(ExitCodeOf(caught.status()), kExitInterrupted);
  EXPECT_FALSE(Stored().end.has_value());
}

// Another process writes the mirror: this test has its lock.
class CatchUpBeside : public CatchUpTest {
 protected:
  void SetUp() override {
    writer_ = Mirror::Open(MirrorDir(), row_.output_segment_bytes).value();
    Store(gpuctl::v1::STREAM_LIFECYCLE, Started());
  }
  void Store(gpuctl::v1::Stream stream, const std::string& data) {
    gpuctl::v1::Chunk chunk;
    chunk.set_stream(stream);
    chunk.set_offset(writer_->size(stream));
    chunk.set_data(data);
    ASSERT_OK(writer_->Apply(chunk));
  }
  void NodeSaysItIsOver(int code) {
    JobEnds(code);
    gpuctl::v1::WatchReply& reply = Script().watch.back();
    int64_t size = 0;
    for (const auto& chunk : reply.chunks()) {
      if (chunk.stream() == gpuctl::v1::STREAM_LIFECYCLE) size += chunk.data().size();
    }
    reply.mutable_heartbeat()->set_lifecycle_size(size);
  }
  std::unique_ptr<Mirror> writer_;
};

TEST_F(CatchUpBeside, AWriterThatHasEverythingIsNotWaitedFor) {
  Store(gpuctl::v1::STREAM_OUTPUT, "hello\n");
  Says(0, "hello\n", 6);
  const auto caught = Catch(row_);
  ASSERT_OK(caught);
  EXPECT_EQ(*caught, Caught::kUp);
  EXPECT_OK(error_);
}

TEST_F(CatchUpBeside, AWriterThatStoresNothingIsNotWaitedForWithoutEnd) {
  Says(0, "hello\n", 6);
  const auto caught = Catch(row_);
  ASSERT_OK(caught);
  EXPECT_EQ(*caught, Caught::kNot);
  EXPECT_THAT(error_, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("may be behind")));
  EXPECT_FALSE(row_.end.has_value());
  EXPECT_EQ(OutputSize(), 0);
}

TEST_F(CatchUpBeside, AnEndThatTheNodeTellsIsRecordedWithoutTheLock) {
  NodeSaysItIsOver(3);
  const auto caught = Catch(row_);
  ASSERT_OK(caught);
  EXPECT_EQ(*caught, Caught::kNot);
  ASSERT_TRUE(Stored().end.has_value());
  EXPECT_EQ(Stored().end->exit_code, 3);
}

TEST_F(CatchUpBeside, ANodeThatCannotBeReachedIsTold) {
  Script().connect = absl::UnavailableError("connection refused");
  const auto caught = Catch(row_);
  ASSERT_OK(caught);
  EXPECT_EQ(*caught, Caught::kNot);
  EXPECT_THAT(error_, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("connection refused")));
}

TEST_F(CatchUpBeside, AWaitSeesTheEndThatTheWriterDoesNotStore) {
  NodeSaysItIsOver(3);
  const std::unique_ptr<LinkFactory> links = world_.node(kNode).Links();
  EXPECT_OK(FollowQuietly(world_.context, *store_, row_, *links, absl::InfiniteDuration(),
                          absl::InfiniteDuration(), nullptr));
  ASSERT_TRUE(row_.end.has_value());
  EXPECT_EQ(row_.end->exit_code, 3);
}

TEST_F(CatchUpBeside, AFollowerThatIsSuspendedReleasesTheMirror) {
  writer_.reset();
  Says(0, "hello\n", 6);
  const std::unique_ptr<LinkFactory> links = world_.node(kNode).Links();
  FollowOptions options = WatchOptions(world_.context, *store_, row_).value();
  FollowObserver observer;
  Follower follower(options, *links, observer, Clock::Real());
  absl::Status followed;
  std::thread thread([&] { followed = follower.Follow(); });
  const auto await_size = [this] {
    while (OutputSize() < 6) Clock::Real().SleepFor(absl::Milliseconds(1));
  };
  await_size();
  EXPECT_FALSE(Mirror::Open(MirrorDir(), row_.output_segment_bytes).ok());
  follower.Suspend(kPatience);
  EXPECT_OK(Mirror::Open(MirrorDir(), row_.output_segment_bytes));
  const int watches = Script().watches;
  follower.Resume();
  while (Script().watches == watches) Clock::Real().SleepFor(absl::Milliseconds(1));
  EXPECT_FALSE(Mirror::Open(MirrorDir(), row_.output_segment_bytes).ok());
  follower.Stop();
  thread.join();
  EXPECT_THAT(followed, StatusIs(absl::StatusCode::kCancelled));
}

// The patience would outlast any test.
TEST_F(CatchUpTest, ASuspendedAllocationIsNotWaitedFor) {
  Script().connect = WithFault(absl::UnavailableError("slurm/17 is suspended by Slurm: SUSPENDED"),
                               LinkFault::kSuspended);
  EXPECT_EQ(Catch(row_, absl::Hours(24)).value(), Caught::kNot);
  EXPECT_THAT(std::string(error_.message()), HasSubstr("is suspended by Slurm"));
  EXPECT_FALSE(Stored().end.has_value());
}

}  // namespace
}  // namespace gpuctl
