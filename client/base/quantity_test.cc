#include "client/base/quantity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuctl {
namespace {

TEST(ParseDurationTest, ReadsWhatPeopleWrite) {
  EXPECT_EQ(*ParseDuration("90s"), absl::Seconds(90));
  EXPECT_EQ(*ParseDuration("10m"), absl::Minutes(10));
  EXPECT_EQ(*ParseDuration("6h"), absl::Hours(6));
  EXPECT_EQ(*ParseDuration("2d"), absl::Hours(48));
  EXPECT_EQ(*ParseDuration("1h30m"), absl::Minutes(90));
  EXPECT_EQ(*ParseDuration("1.5h"), absl::Minutes(90));
  EXPECT_EQ(*ParseDuration("250ms"), absl::Milliseconds(250));
}

TEST(ParseDurationTest, RefusesTheRest) {
  for (const char* text :
       {"", " ", "10", "h", "-5s", "10 parsecs", "1e9h", "5s!", "1..5s", "99999d"}) {
    EXPECT_FALSE(ParseDuration(text).ok()) << text;
  }
}

TEST(ParseDurationTest, NamesOursForTheDurationsOfSlurm) {
  const std::pair<const char*, const char*> kOurs[] = {
      {"60", "60s, 60m or 60h; Slurm means 1h by it"},
      {"90:00", "Slurm means 1h30m by it"},
      {"01:00:00", "Slurm means 1h by it"},
      {"0:00:30", "Slurm means 30s by it"},
      {"1-12", "Slurm means 1d12h by it"},
      {"2-00:30", "Slurm means 2d30m by it"},
      {"1-02:03:04", "Slurm means 1d2h3m4s by it"}};
  for (const auto& [text, ours] : kOurs) {
    const absl::Status status = ParseDuration(text).status();
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(ours)) << text;
  }
  for (const char* text : {"1:2:3:4", "-5", "1-2-3", "a:b", "::", "0"}) {
    EXPECT_THAT(std::string(ParseDuration(text).status().message()),
                ::testing::Not(::testing::HasSubstr("Slurm")))
        << text;
  }
}

TEST(ParseSizeTest, ReadsBothKindsOfUnits) {
  EXPECT_EQ(*ParseSize("100GB"), 100'000'000'000);
  EXPECT_EQ(*ParseSize("8MiB"), 8 << 20);
  EXPECT_EQ(*ParseSize("4096"), 4096);
  EXPECT_EQ(*ParseSize("1.5 KiB"), 1536);
  EXPECT_EQ(*ParseSize("2T"), 2'000'000'000'000);
  for (const char* text : {"", "GB", "-1GB", "5 apples", "99999999999TB"}) {
    EXPECT_FALSE(ParseSize(text).ok()) << text;
  }
}

TEST(ParsePriceTest, ReadsDollars) {
  EXPECT_EQ(*ParsePrice("3.50"), 3.5);
  EXPECT_EQ(*ParsePrice(" $0.2"), 0.2);
  for (const char* text : {"", "$", "0", "-1", "3 EUR", "1e3", "nan", "99999999"}) {
    EXPECT_FALSE(ParsePrice(text).ok()) << text;
  }
}

TEST(FormatTest, ReadsWell) {
  EXPECT_EQ(FormatBytes(812), "812 B");
  EXPECT_EQ(FormatBytes(53'200'000), "53.2 MB");
  EXPECT_EQ(FormatBytes(999'999), "1.00 MB");
  EXPECT_EQ(HumanDuration(absl::Seconds(12)), "12s");
  EXPECT_EQ(HumanDuration(absl::Seconds(200)), "3m 20s");
  EXPECT_EQ(HumanDuration(absl::Minutes(65)), "1h 05m");
  EXPECT_EQ(HumanDuration(absl::Hours(52)), "2d 4h");
  EXPECT_EQ(FormatRfc3339(1'735'787'045'678), "2025-01-02T03:04:05.678Z");
  EXPECT_EQ(FormatNumber(0.0003), "0.0003");
  EXPECT_EQ(FormatNumber(2.34567), "2.346");
  EXPECT_EQ(FormatNumber(1.2e-7), "1.2e-07");
  EXPECT_EQ(FormatNumber(123456), "123456");
  EXPECT_EQ(FormatUsd(-0.0), "$0.00");
  EXPECT_EQ(FormatUsd(0.0042), "$0.0042");
  EXPECT_EQ(FormatUsd(12.345), "$12.35");
}

}  // namespace
}  // namespace gpuctl
