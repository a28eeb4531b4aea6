#include "client/base/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <future>
#include <string>
#include <vector>

#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::Duration kLong = absl::Minutes(1);
constexpr absl::Duration kShort = absl::Milliseconds(10);

struct TestNews {
  std::vector<std::string> notices;  // returned once
  int count = 0;
  bool done = false;

  void Forget() { notices.clear(); }
};

using TestWorker = Worker<TestNews>;

void Tell(TestWorker& worker, const std::string& notice) {
  worker.Update([&](TestNews& news) {
    news.notices.push_back(notice);
    ++news.count;
  });
  worker.Wake();
}

class WorkerTest : public ::testing::Test {
 protected:
  bool Wait(const TestWorker& worker, absl::Duration timeout) {
    return WaitForNews({worker.wake_fd()}, signals_, timeout);
  }

  SignalPipe signals_ = SignalPipe::Install({SIGUSR1}).value();
};

TEST_F(WorkerTest, TellsBeforeAndDuringTheWait) {
  std::promise<void> go_on;
  TestWorker worker(Clock::Real());
  ASSERT_OK(worker.Start([&] {
    Tell(worker, "before");
    go_on.get_future().wait();
    Clock::Real().SleepFor(kShort);
    Tell(worker, "during");
  }));
  ASSERT_TRUE(Wait(worker, kLong));
  EXPECT_THAT(worker.Take().notices, ElementsAre("before"));
  EXPECT_FALSE(Wait(worker, absl::ZeroDuration())) << "Take did not clear the pipe";
  go_on.set_value();
  ASSERT_TRUE(Wait(worker, kLong));
  const TestNews news = worker.Take();
  EXPECT_THAT(news.notices, ElementsAre("during"));
  EXPECT_EQ(news.count, 2);
}

TEST_F(WorkerTest, ItsEndIsNews) {
  TestWorker worker(Clock::Real());
  ASSERT_OK(worker.Start([] {}));
  ASSERT_TRUE(Wait(worker, kLong));
  EXPECT_TRUE(worker.Take().done);
  EXPECT_TRUE(worker.Take().done);
}

TEST_F(WorkerTest, FinishSaysWhenTheThreadIsStillInside) {
  std::promise<void> leave;
  TestWorker worker(Clock::Real());
  ASSERT_OK(worker.Start([&] { leave.get_future().wait(); }));
  const absl::Duration begin = Clock::Real().SinceBoot();
  EXPECT_FALSE(worker.Finish(kShort));
  EXPECT_GE(Clock::Real().SinceBoot() - begin, kShort);
  EXPECT_FALSE(worker.Finish(absl::ZeroDuration()));
  EXPECT_FALSE(worker.Take().done);
  leave.set_value();
  EXPECT_TRUE(worker.Finish(kLong));
  EXPECT_TRUE(worker.Finish(absl::ZeroDuration()));
  EXPECT_TRUE(worker.Take().done);
}

TEST_F(WorkerTest, FinishDoesNotWaitForWhatWasNeverStarted) {
  TestNews first;
  first.count = 7;
  TestWorker worker(Clock::Real(), first);
  EXPECT_TRUE(worker.Finish(kLong));
  EXPECT_EQ(worker.Take().count, 7);
}

TEST_F(WorkerTest, ItsDestructorWaitsForTheThread) {
  std::atomic<bool> ended = false;
  {
    TestWorker worker(Clock::Real());
    ASSERT_OK(worker.Start([&] {
      Clock::Real().SleepFor(kShort);
      ended = true;
    }));
  }
  EXPECT_TRUE(ended);
}

TEST_F(WorkerTest, TwoAreWaitedForTogether) {
  std::promise<void> one_leaves, other_leaves;
  TestWorker one(Clock::Real()), other(Clock::Real());
  ASSERT_OK(one.Start([&] { one_leaves.get_future().wait(); }));
  ASSERT_OK(other.Start([&] { other_leaves.get_future().wait(); }));
  const auto wait = [&](absl::Duration timeout) {
    return WaitForNews({one.wake_fd(), other.wake_fd()}, signals_, timeout);
  };
  EXPECT_FALSE(wait(kShort));
  other_leaves.set_value();
  ASSERT_TRUE(wait(kLong));
  EXPECT_FALSE(one.Take().done);
  EXPECT_TRUE(other.Take().done);
  EXPECT_FALSE(wait(kShort));
  one_leaves.set_value();
  ASSERT_TRUE(wait(kLong));
  EXPECT_TRUE(one.Take().done);
}

TEST_F(WorkerTest, TheSignalOfAWaitLeavesTheNews) {
  std::promise<void> leave;
  TestWorker worker(Clock::Real());
  ASSERT_OK(worker.Start([&] {
    leave.get_future().wait();
    Tell(worker, "told");
  }));
  raise(SIGUSR1);
  ASSERT_TRUE(Wait(worker, kLong));
  EXPECT_THAT(signals_.Take(), ElementsAre(SIGUSR1));
  EXPECT_THAT(worker.Take().notices, IsEmpty());
  leave.set_value();
  EXPECT_TRUE(worker.Finish(kLong));
  EXPECT_THAT(worker.Take().notices, ElementsAre("told"));
}

}  // namespace
}  // namespace gpuctl
