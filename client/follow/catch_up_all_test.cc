// Runs on several nodes that are brought up to date side by side.
#include "client/follow/catch_up_all.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "common/base/clock.h"
#include "common/job/lifecycle.h"
#include "tests/support/client_world.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Longer than any answer of a node that answers.
constexpr absl::Duration kAmple = absl::Minutes(5);

class CatchUpAllTest : public ::testing::Test {
 protected:
  CatchUpAllTest() : world_(Clock::Real()) { store_ = world_.context.Store().value(); }

  // Adds a run on a node of its own, "box-NUMBER".
  NodeScript& AddRun(int number) {
    RunRow row;
    row.run_id = absl::StrCat("r-", number);
    row.name = absl::StrCat("run-", number);
    row.job_id = absl::StrCat("j-", number);
    row.target.provider = "ssh";
    row.target.name = absl::StrCat("box-", number);
    row.output_segment_bytes = 1 << 20;
    row.created_ms = number;
    EXPECT_OK(store_->Insert(row));
    EXPECT_OK(store_->SetAccepted(row.run_id, "n-1", 2));
    rows_.push_back(store_->Get(row.run_id).value());
    return world_.script(row.target.name);
  }
  // Has the job begin; with a code, also end.
  static void Begins(NodeScript& script, int code = -1) {
    LifecycleEvent started;
    started.attempt = 1;
    started.pid = 7;
    started.boot_id = "b-1";
    std::string events = FormatLifecycleEvent(started);
    if (code >= 0) {
      LifecycleEvent exited;
      exited.type = LifecycleEvent::Type::kExited;
      exited.attempt = 1;
      exited.exit_code = code;
      exited.time_ms = 1234;
      events += FormatLifecycleEvent(exited);
    }
    gpuctl::v1::WatchReply& reply = script.watch.emplace_back();
    gpuctl::v1::Chunk& chunk = *reply.add_chunks();
    chunk.set_stream(gpuctl::v1::STREAM_LIFECYCLE);
    chunk.set_data(events);
    reply.mutable_heartbeat()->set_node_id("n-1");
    reply.set_complete(code >= 0);
  }

  ClientWorld world_;
  RunStore* store_ = nullptr;
  std::vector<RunRow> rows_;
};

TEST_F(CatchUpAllTest, EachRunGetsAnAnswerOfItsOwn) {
  for (int i = 0; i < 40; ++i) Begins(AddRun(i), i % 2 == 0 ? -1 : i);
  CatchUpAll all(world_.context, *store_, rows_);
  const auto results = all.Run(kAmple);
  ASSERT_OK(results);
  ASSERT_EQ(results->size(), 40u);
  for (int i = 0; i < 40; ++i) {
    SCOPED_TRACE(i);
    const CaughtRun& result = (*results)[static_cast<size_t>(i)];
    EXPECT_EQ(result.caught, i % 2 == 0 ? Caught::kUp : Caught::kOver);
    EXPECT_OK(result.error);
    const RunRow stored = store_->Get(absl::StrCat("r-", i)).value();
    ASSERT_EQ(stored.end.has_value(), i % 2 != 0);
    if (stored.end.has_value()) {
      EXPECT_EQ(stored.end->exit_code, i);
    }
  }
  EXPECT_FALSE(all.stuck());
}

TEST_F(CatchUpAllTest, ASilentNodeHoldsNobodyUp) {
  // More silent nodes than are asked at the same time.
  for (int i = 0; i < 20; ++i) AddRun(i);  // their Watch stays open and says nothing
  Begins(AddRun(20), 3);
  std::rotate(rows_.begin(), rows_.end() - 1, rows_.end());
  CatchUpAll all(world_.context, *store_, rows_);
  const auto results = all.Run(absl::Seconds(1));
  ASSERT_OK(results);
  EXPECT_EQ((*results)[0].caught, Caught::kOver);
  for (size_t i = 1; i < results->size(); ++i) {
    EXPECT_EQ((*results)[i].caught, Caught::kNot);
    EXPECT_THAT((*results)[i].error,
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("did not answer within 1s")));
    EXPECT_FALSE(rows_[i].end.has_value());
  }
}

TEST_F(CatchUpAllTest, WhoCouldNotBeAskedIsToldOnceEachAndTenAreNamed) {
  std::vector<CaughtRun> results;
  for (int i = 0; i < 13; ++i) {
    AddRun(i);
    results.emplace_back().error = absl::UnavailableError("no answer");
  }
  rows_[1].target = rows_[0].target;  // one machine, one reason
  results[2].caught = Caught::kUp;
  results[2].notices = {"run-2 told this"};
  ::testing::internal::CaptureStderr();
  TellOfCaughtRuns(world_.context, rows_, results);
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("run-0: no answer\n"));
  EXPECT_THAT(told, Not(HasSubstr("run-1: no answer")));
  EXPECT_THAT(told, HasSubstr("run-2 told this\n"));
  EXPECT_THAT(told, HasSubstr("run-11: no answer\n"));
  EXPECT_THAT(told, Not(HasSubstr("run-12: no answer")));
  EXPECT_THAT(told, HasSubstr("1 other machine could not be asked\n"));
}

TEST_F(CatchUpAllTest, TheReasonOfALinkThatFailsIsTold) {
  AddRun(0).connect = absl::UnavailableError("no route to host");
  Begins(AddRun(1));
  CatchUpAll all(world_.context, *store_, rows_);
  const auto results = all.Run(absl::Seconds(1));
  ASSERT_OK(results);
  EXPECT_EQ((*results)[0].caught, Caught::kNot);
  EXPECT_THAT((*results)[0].error,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no route to host")));
  EXPECT_EQ((*results)[1].caught, Caught::kUp);
}

TEST_F(CatchUpAllTest, CtrlCEndsTheAsking) {
  NodeScript& silent = AddRun(0);
  std::thread interrupter([&silent] {
    for (int looks = 0; silent.watches == 0 && looks < 60'000; ++looks) {
      Clock::Real().SleepFor(absl::Milliseconds(1));
    }
    kill(getpid(), SIGINT);
  });
  CatchUpAll all(world_.context, *store_, rows_);
  const auto results = all.Run(kAmple);
  interrupter.join();
  EXPECT_THAT(results, StatusIs(absl::StatusCode::kCancelled, HasSubstr("interrupted")));
  EXPECT_EQ(ExitCodeOf(results.status()), kExitInterrupted);
  EXPECT_FALSE(store_->Get("r-0").value().end.has_value());
}

}  // namespace
}  // namespace gpuctl
