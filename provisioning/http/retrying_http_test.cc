#include "provisioning/http/retrying_http.h"

#include <gtest/gtest.h>

#include "tests/support/fake_http.h"
#include "tests/support/matchers.h"
#include "tests/support/stepping_clock.h"

namespace gpuctl {
namespace {

HttpRequest Read() {
  HttpRequest request;
  request.method = "GET";
  request.url = "http://127.0.0.1/list";
  request.repeatable = true;
  return request;
}

HttpRequest Create() {
  HttpRequest request;
  request.method = "POST";
  request.url = "http://127.0.0.1/create";
  request.creates = true;
  return request;
}

class RetryingHttpTest : public ::testing::Test {
 protected:
  RetryingHttpTest() {
    auto fake = std::make_unique<FakeHttp>();
    fake_ = fake.get();
    http_ = MakeRetryingHttp(std::move(fake), clock_, RetryPolicy());
  }
  size_t sent() { return fake_->requests().size(); }

  SteppingClock clock_;
  FakeHttp* fake_;
  std::unique_ptr<Http> http_;
};

TEST_F(RetryingHttpTest, ReadsAreRepeatedAfterEveryPassingFailure) {
  fake_->Answer(absl::UnavailableError("refused"))
      .Answer(absl::UnknownError("torn"))
      .Answer(absl::DeadlineExceededError("slow"))
      .Answer(502)
      .Answer(200, "[]");
  const auto response = http_->Send(Read());
  ASSERT_OK(response);
  EXPECT_EQ(response->status, 200);
  EXPECT_EQ(sent(), 5u);
  ASSERT_EQ(clock_.sleeps().size(), 4u);
  EXPECT_GE(clock_.sleeps()[0], absl::Milliseconds(750));
  EXPECT_LE(clock_.sleeps()[0], absl::Milliseconds(1250));
  EXPECT_GE(clock_.sleeps()[3], absl::Seconds(6));
}

TEST_F(RetryingHttpTest, CreatesAreNeverRepeatedWhenTheyMayHaveHappened) {
  for (const absl::Status& status : {absl::UnavailableError("refused"), absl::UnknownError("torn"),
                                     absl::DeadlineExceededError("slow")}) {
    fake_->Answer(status);
    EXPECT_EQ(http_->Send(Create()).status(), status);
  }
  fake_->Answer(500);
  const auto response = http_->Send(Create());
  ASSERT_OK(response);
  EXPECT_EQ(response->status, 500);
  EXPECT_EQ(sent(), 4u);
  EXPECT_TRUE(clock_.sleeps().empty());
}

TEST_F(RetryingHttpTest, ACreateIsNotEvenRepeatedAfter429) {
  fake_->Answer(429);
  EXPECT_EQ(http_->Send(Create())->status, 429);
  EXPECT_EQ(sent(), 1u);
}

TEST_F(RetryingHttpTest, TooManyRequestsMeansThatNothingWasDone) {
  fake_->Answer(429, "", {{"retry-after", "7"}}).Answer(201);
  HttpRequest change = Create();
  change.creates = false;
  const auto response = http_->Send(change);
  ASSERT_OK(response);
  EXPECT_EQ(response->status, 201);
  EXPECT_EQ(clock_.sleeps(), std::vector<absl::Duration>{absl::Seconds(7)});
}

TEST_F(RetryingHttpTest, AnswersAreFinalWhenTheyAreNoPassingFailure) {
  for (const int status : {200, 301, 400, 401, 404, 410, 422}) {
    fake_->Answer(status);
    EXPECT_EQ(http_->Send(Read())->status, status);
  }
  EXPECT_EQ(sent(), 7u);
}

TEST_F(RetryingHttpTest, GivesUpAtOnceWhenPatienceWouldTakeTooLong) {
  fake_->Answer(429, "", {{"retry-after", "3600"}});
  EXPECT_EQ(http_->Send(Read())->status, 429);
  EXPECT_TRUE(clock_.sleeps().empty());
}

TEST_F(RetryingHttpTest, GivesUpInTheEnd) {
  for (int i = 0; i < 20; ++i) fake_->Answer(503);
  EXPECT_EQ(http_->Send(Read())->status, 503);
  EXPECT_EQ(sent(), static_cast<size_t>(RetryPolicy().max_attempts));
}

TEST(RetryAfter, SecondsAndDates) {
  const absl::Time now = absl::FromUnixSeconds(784'111'777);  // Sun, 06 Nov 1994 08:49:37 GMT
  HttpResponse response;
  EXPECT_EQ(RetryAfter(response, now), std::nullopt);
  response.headers = {{"retry-after", "Sun, 06 Nov 1994 08:49:50 GMT"}};
  EXPECT_EQ(RetryAfter(response, now), absl::Seconds(13));
  response.headers = {{"retry-after", "Sun, 06 Nov 1994 08:00:00 GMT"}};
  EXPECT_EQ(RetryAfter(response, now), absl::ZeroDuration());
  response.headers = {{"retry-after", "-4"}};
  EXPECT_EQ(RetryAfter(response, now), absl::ZeroDuration());
  response.headers = {{"retry-after", "soon"}};
  EXPECT_EQ(RetryAfter(response, now), std::nullopt);
}

TEST(RetryAfter, ALimitThatIsUsedUp) {
  const auto asked = [](const std::string& limit) {
    HttpResponse response;
    response.headers = {{"ratelimit", limit}};
    return RetryAfter(response, absl::UnixEpoch());
  };
  EXPECT_EQ(asked("\"api\";r=0;t=55"), absl::Seconds(55));
  EXPECT_EQ(asked("\"pages\";r=7;t=200, \"api\"; r=0; t=41"), absl::Seconds(41));
  for (const char* none : {"", "api", "\"api\";r=3;t=55", "\"api\";r=0;t=soon", ";;,,"}) {
    EXPECT_EQ(asked(none), std::nullopt) << none;
  }
  HttpResponse both;
  both.headers = {{"ratelimit", "\"api\";r=0;t=55"}, {"retry-after", "3"}};
  EXPECT_EQ(RetryAfter(both, absl::UnixEpoch()), absl::Seconds(3));
}

}  // namespace
}  // namespace gpuctl
