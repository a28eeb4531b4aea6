#include "client/follow/stop_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <thread>

#include "common/base/clock.h"
#include "tests/support/client_world.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

class StopCallTest : public ::testing::Test {
 protected:
  StopCallTest() : world_(Clock::Real()), links_(world_.node("me@box:22").Links()) {
    row_.run_id = "r-1";
    row_.job_id = "j-1";
    row_.target.provider = "ssh";
    row_.target.name = "me@box:22";
    call_ = std::make_unique<StopCall>(world_.context, *links_, row_);
  }
  // The thread that asks ends with this.
  ~StopCallTest() override { Script().stops_hang = false; }
  NodeScript& Script() { return world_.script("me@box:22"); }

  SignalPipe signals_ = SignalPipe::Install({SIGINT, SIGTERM}).value();
  ClientWorld world_;
  std::unique_ptr<LinkFactory> links_;
  RunRow row_;
  std::unique_ptr<StopCall> call_;
};

TEST_F(StopCallTest, ReturnsTheAnswerOfTheNode) {
  Script().stop = absl::NotFoundError("the node has no such job");
  EXPECT_THAT(call_->Run(signals_, absl::Hours(1)), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_FALSE(call_->stuck());
  ASSERT_EQ(Script().stops.size(), 1u);
  EXPECT_EQ(Script().stops[0].job_id(), "j-1");
}

TEST_F(StopCallTest, ANodeThatIsNotReachedIsToldAsItsError) {
  Script().connect = absl::UnavailableError("no route to host");
  EXPECT_THAT(call_->Run(signals_, absl::Hours(1)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no route to host")));
  EXPECT_FALSE(call_->stuck());
}

TEST_F(StopCallTest, ASignalLeavesASilentNode) {
  Script().stops_hang = true;
  std::thread user([this] {
    while (Script().stop_calls == 0) Clock::Real().SleepFor(absl::Milliseconds(1));
    raise(SIGTERM);
  });
  EXPECT_THAT(call_->Run(signals_, absl::Hours(1)), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_TRUE(call_->stuck());
  user.join();
}

TEST_F(StopCallTest, ASilentNodeIsAskedNoLongerThanTheLimit) {
  Script().stops_hang = true;
  EXPECT_THAT(
      call_->Run(signals_, absl::Milliseconds(20)),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("me@box:22 did not answer within")));
  EXPECT_TRUE(call_->stuck());
}

}  // namespace
}  // namespace gpuctl
