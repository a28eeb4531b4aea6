#include "provisioning/http/limited_http.h"

#include <gtest/gtest.h>

#include "tests/support/fake_http.h"
#include "tests/support/matchers.h"
#include "tests/support/stepping_clock.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

class LimitedHttpTest : public ::testing::Test {
 protected:
  LimitedHttpTest() {
    RateLimits limits;
    limits.all = {absl::Seconds(1), 1, absl::Seconds(5)};
    auto fake = std::make_unique<FakeHttp>();
    fake_ = fake.get();
    http_ = MakeLimitedHttp(
        std::move(fake), std::make_unique<RateBuckets>(dir_.Sub("lambda"), limits, clock_), clock_);
  }
  TempDir dir_;
  SteppingClock clock_;
  FakeHttp* fake_;
  std::unique_ptr<Http> http_;
};

TEST_F(LimitedHttpTest, WaitsForItsTurn) {
  fake_->Answer(200).Answer(200).Answer(200);
  for (int i = 0; i < 3; ++i) ASSERT_OK(http_->Send({}));
  EXPECT_EQ(clock_.sleeps(), (std::vector<absl::Duration>{absl::Seconds(1), absl::Seconds(1)}));
}

TEST_F(LimitedHttpTest, ARefusalMakesTheNextOneWait) {
  fake_->Answer(429, "", {{"retry-after", "30"}}).Answer(200).Answer(429).Answer(200);
  ASSERT_OK(http_->Send({}));
  ASSERT_OK(http_->Send({}));
  clock_.Advance(absl::Minutes(1));
  ASSERT_OK(http_->Send({}));
  ASSERT_OK(http_->Send({}));
  EXPECT_EQ(clock_.sleeps(), (std::vector<absl::Duration>{absl::Seconds(30), absl::Seconds(5)}));
}

TEST_F(LimitedHttpTest, SendsNothingWhenItsTurnIsFarAway) {
  fake_->Answer(429, "", {{"retry-after", "240"}});
  ASSERT_OK(http_->Send({}));
  EXPECT_THAT(http_->Send({}), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(fake_->requests().size(), 1u);
  EXPECT_TRUE(clock_.sleeps().empty());
}

}  // namespace
}  // namespace gpuctl
