#include "client/base/cron.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

absl::TimeZone Zone(const char* name) {
  absl::TimeZone zone;
  EXPECT_TRUE(absl::LoadTimeZone(name, &zone)) << name;
  return zone;
}

absl::Time At(const char* text, absl::TimeZone zone = absl::UTCTimeZone()) {
  absl::Time time;
  std::string error;
  EXPECT_TRUE(absl::ParseTime("%Y-%m-%d %H:%M:%S", text, zone, &time, &error)) << error;
  return time;
}

// Returns the next time as text.
std::string Next(const char* cron, absl::Time after, absl::TimeZone zone = absl::UTCTimeZone()) {
  const absl::StatusOr<CronTimes> times = ParseCron(cron);
  EXPECT_OK(times);
  if (!times.ok()) return "";
  const std::optional<absl::Time> next = NextCronTime(*times, after, zone);
  return next.has_value() ? absl::FormatTime("%Y-%m-%d %H:%M:%S %z", *next, zone) : "never";
}

TEST(CronTest, FieldsListsRangesStepsAndNames) {
  const absl::Time wednesday = At("2026-11-25 09:30:00");
  EXPECT_EQ(Next("0 3 * * *", wednesday), "2026-11-26 03:00:00 +0000");
  EXPECT_EQ(Next("30 9 * * *", wednesday), "2026-11-26 09:30:00 +0000");  // after, not at
  EXPECT_EQ(Next("31 9 * * *", wednesday), "2026-11-25 09:31:00 +0000");
  EXPECT_EQ(Next("*/15 * * * *", wednesday), "2026-11-25 09:45:00 +0000");
  EXPECT_EQ(Next("5,50 8-18/2 * * *", wednesday), "2026-11-25 10:05:00 +0000");
  EXPECT_EQ(Next("0 0 * * sun", wednesday), "2026-11-29 00:00:00 +0000");
  EXPECT_EQ(Next("0 0 * * 7", wednesday), "2026-11-29 00:00:00 +0000");
  EXPECT_EQ(Next("0 12 * * Mon-Fri", At("2026-11-27 13:00:00")), "2026-11-30 12:00:00 +0000");
  EXPECT_EQ(Next("0 12 * * fri-sun", At("2026-11-28 13:00:00")), "2026-11-29 12:00:00 +0000");
  EXPECT_EQ(Next("0 0 1 JAN *", wednesday), "2027-01-01 00:00:00 +0000");
  EXPECT_EQ(Next("0 0 29 2 *", wednesday), "2028-02-29 00:00:00 +0000");
  EXPECT_EQ(Next("0 0 31 * *", At("2026-03-31 00:00:00")), "2026-05-31 00:00:00 +0000");
  // With both, one of them is enough.
  EXPECT_EQ(Next("0 0 13 * fri", wednesday), "2026-11-27 00:00:00 +0000");
  EXPECT_EQ(Next("@daily", wednesday), "2026-11-26 00:00:00 +0000");
  EXPECT_EQ(Next("  0\t3 * * * ", wednesday), "2026-11-26 03:00:00 +0000");
}

TEST(CronTest, SummerTime) {
  const absl::TimeZone berlin = Zone("Europe/Berlin");
  // 02:30 is not there on 28 March 2027: it comes at the change, once.
  const absl::Time before = At("2027-03-28 01:00:00", berlin);
  EXPECT_EQ(Next("30 2 * * *", before, berlin), "2027-03-28 03:00:00 +0200");
  EXPECT_EQ(Next("30 2 * * *", At("2027-03-28 03:00:00", berlin), berlin),
            "2027-03-29 02:30:00 +0200");
  // 02:30 comes twice on 25 October 2026: the first one counts.
  const absl::Time autumn = At("2026-10-25 01:00:00", berlin);
  EXPECT_EQ(Next("30 2 * * *", autumn, berlin), "2026-10-25 02:30:00 +0200");
  const std::optional<absl::Time> first = NextCronTime(*ParseCron("30 2 * * *"), autumn, berlin);
  EXPECT_EQ(Next("30 2 * * *", *first, berlin), "2026-10-26 02:30:00 +0100");
  EXPECT_EQ(Next("30 2 * * *", *first + absl::Minutes(50), berlin), "2026-10-26 02:30:00 +0100");
  // The second pass of that hour is no new day of minutes, and nothing is lost behind it.
  EXPECT_EQ(Next("0 3 * * *", *first, berlin), "2026-10-25 03:00:00 +0100");
}

TEST(CronTest, EachTimeIsLaterThanTheOneBefore) {
  const absl::TimeZone zones[] = {Zone("America/New_York"), Zone("Australia/Lord_Howe"),
                                  absl::UTCTimeZone()};
  for (const absl::TimeZone& zone : zones) {
    for (const char* cron : {"*/7 * * * *", "0 */3 * * 1-5", "15 2 1,15 * *", "0 2 * * *"}) {
      const CronTimes times = *ParseCron(cron);
      absl::Time at = At("2026-03-01 00:00:00");
      for (int i = 0; i < 400; ++i) {
        const std::optional<absl::Time> next = NextCronTime(times, at, zone);
        ASSERT_TRUE(next.has_value());
        ASSERT_GT(*next, at) << cron;
        at = *next;
      }
    }
  }
}

TEST(CronTest, WhatIsWrongIsNamed) {
  const auto error = [](const char* text) {
    return std::string(ParseCron(text).status().message());
  };
  EXPECT_THAT(error(""), HasSubstr("0 fields, not five"));
  EXPECT_THAT(error("0 3 * *"), HasSubstr("4 fields"));
  EXPECT_THAT(error("60 3 * * *"), HasSubstr("minute \"60\" is not within 0 and 59"));
  EXPECT_THAT(error("0 24 * * *"), HasSubstr("hour"));
  EXPECT_THAT(error("0 3 0 * *"), HasSubstr("day of the month"));
  EXPECT_THAT(error("0 3 * xyz *"), HasSubstr("month \"xyz\" is no number"));
  EXPECT_THAT(error("0 3 * * 8"), HasSubstr("day of the week"));
  EXPECT_THAT(error("5-1 3 * * *"), HasSubstr("ends before it begins"));
  EXPECT_THAT(error("*/0 3 * * *"), HasSubstr("behind the /"));
  EXPECT_THAT(error("*/-1 3 * * *"), HasSubstr("behind the /"));
  EXPECT_THAT(error("1, 3 * * *"), HasSubstr("minute \"\""));
  EXPECT_THAT(error("0 0 30 2 *"), HasSubstr("never comes"));
  EXPECT_THAT(error("-1 3 * * *"), HasSubstr("minute"));
  EXPECT_THAT(error("99999999999 3 * * *"), HasSubstr("minute"));
}

}  // namespace
}  // namespace gpuctl
