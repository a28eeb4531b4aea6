#include "provisioning/http/dated_http.h"

#include <gtest/gtest.h>

#include "tests/support/matchers.h"
#include "tests/support/stepping_clock.h"

namespace gpuctl {
namespace {

class AnswersWith : public Http {
 public:
  explicit AnswersWith(std::string date) : date_(std::move(date)) {}
  absl::StatusOr<HttpResponse> Send(const HttpRequest&) override {
    HttpResponse response;
    response.status = 200;
    response.headers = {{"content-type", "text/plain"}, {"date", date_}};
    return response;
  }

 private:
  const std::string date_;
};

std::optional<absl::Duration> SkewBy(Clock& clock, const std::string& date) {
  const auto skew = std::make_shared<ClockSkew>();
  const auto http = MakeDatedHttp(std::make_unique<AnswersWith>(date), clock, skew);
  EXPECT_OK(http->Send({}));
  return skew->Get();
}

TEST(DatedHttp, TellsHowFarTheClockIsAhead) {
  SteppingClock clock;
  const absl::Time date = clock.Now() - absl::Hours(9600);
  const auto skew =
      SkewBy(clock, absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", date, absl::UTCTimeZone()));
  ASSERT_TRUE(skew.has_value());
  EXPECT_LE(absl::AbsDuration(*skew - absl::Hours(9600)), absl::Seconds(1));
}

TEST(DatedHttp, KnowsTheExampleOfTheStandard) {
  SteppingClock clock;
  const auto skew = SkewBy(clock, "Tue, 15 Nov 1994 08:12:31 GMT");
  ASSERT_TRUE(skew.has_value());
  EXPECT_EQ(absl::ToUnixSeconds(clock.Now() - *skew), 784887151);
}

TEST(DatedHttp, WhatIsNoDateSaysNothing) {
  SteppingClock clock;
  for (const char* date : {"", "yesterday", "2026-11-24T00:00:00Z", "Tue, 15 Nov 1994"}) {
    EXPECT_FALSE(SkewBy(clock, date).has_value()) << date;
  }
}

}  // namespace
}  // namespace gpuctl
