#include "client/base/wake_pipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "common/base/clock.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::Duration kLongWait = absl::Minutes(1);

class WaitForNewsTest : public ::testing::Test {
 protected:
  WaitForNewsTest() {
    EXPECT_OK(one_.Open());
    EXPECT_OK(other_.Open());
  }

  bool Wait(absl::Duration timeout) {
    return WaitForNews({one_.fd(), other_.fd()}, signals_, timeout);
  }

  // Measures a wait that nobody ends.
  absl::Duration LengthOf(absl::Duration timeout) {
    const absl::Duration begin = Clock::Real().SinceBoot();
    EXPECT_FALSE(Wait(timeout));
    return Clock::Real().SinceBoot() - begin;
  }

  SignalPipe signals_ = SignalPipe::Install({SIGUSR1}).value();
  WakePipe one_, other_;
};

TEST_F(WaitForNewsTest, AWakeBeforeTheWaitEndsIt) {
  other_.Wake();
  EXPECT_TRUE(Wait(kLongWait));
  EXPECT_TRUE(Wait(kLongWait)) << "the wait took it away";
  other_.Clear();
  EXPECT_FALSE(Wait(absl::ZeroDuration()));
}

TEST_F(WaitForNewsTest, AWakeDuringTheWaitEndsIt) {
  std::thread waker([this] {
    Clock::Real().SleepFor(absl::Milliseconds(20));
    one_.Wake();
  });
  EXPECT_TRUE(Wait(absl::InfiniteDuration()));
  waker.join();
}

TEST_F(WaitForNewsTest, ASignalDuringTheWaitEndsItAndStays) {
  std::thread sender([] {
    Clock::Real().SleepFor(absl::Milliseconds(20));
    kill(getpid(), SIGUSR1);
  });
  EXPECT_TRUE(Wait(absl::InfiniteDuration()));
  sender.join();
  EXPECT_THAT(signals_.Take(), ElementsAre(SIGUSR1));
  EXPECT_FALSE(Wait(absl::ZeroDuration()));
}

TEST_F(WaitForNewsTest, ASignalBeforeTheWaitEndsItWithoutWakePipes) {
  raise(SIGUSR1);
  EXPECT_TRUE(WaitForNews({}, signals_, kLongWait));
  EXPECT_THAT(signals_.Take(), ElementsAre(SIGUSR1));
  EXPECT_FALSE(WaitForNews({}, signals_, absl::ZeroDuration()));
}

TEST_F(WaitForNewsTest, TheDeadlineEndsItAndNotEarlier) {
  EXPECT_GE(LengthOf(absl::Milliseconds(20)), absl::Milliseconds(20));
  // Rounded down, this would not wait at all.
  EXPECT_GE(LengthOf(absl::Microseconds(900)), absl::Microseconds(900));
  EXPECT_LT(LengthOf(-absl::Seconds(5)), absl::Seconds(1));
  EXPECT_THAT(signals_.Take(), IsEmpty());
}

TEST(WakePipe, AFullOneDoesNotBlock) {
  WakePipe pipe;
  ASSERT_OK(pipe.Open());
  for (int i = 0; i < 100'000; ++i) pipe.Wake();
  pipe.Clear();
  const SignalPipe signals = SignalPipe::Install({SIGUSR1}).value();
  EXPECT_FALSE(WaitForNews({pipe.fd()}, signals, absl::ZeroDuration()));
}

}  // namespace
}  // namespace gpuctl
