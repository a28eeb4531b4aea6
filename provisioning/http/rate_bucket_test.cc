#include "provisioning/http/rate_bucket.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "tests/support/matchers.h"
#include "tests/support/stepping_clock.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kPatient = absl::Hours(1);

RateLimits Limits() {
  RateLimits limits;
  limits.all = {absl::Seconds(1), 1, absl::Seconds(5)};
  limits.classes["launch"] = {absl::Seconds(12), 1, absl::Seconds(20)};
  return limits;
}

class RateBucketTest : public ::testing::Test {
 protected:
  RateBuckets Buckets(RateLimits limits = Limits()) {
    return RateBuckets(path_, std::move(limits), clock_);
  }
  TempDir dir_;
  std::string path_ = dir_.Sub("rates/lambda");
  SteppingClock clock_;
};

TEST_F(RateBucketTest, SpacesRequests) {
  RateBuckets buckets = Buckets();
  EXPECT_EQ(buckets.Take("", kPatient), absl::ZeroDuration());
  EXPECT_EQ(buckets.Take("", kPatient), absl::Seconds(1));
  EXPECT_EQ(buckets.Take("", kPatient), absl::Seconds(2));
  clock_.Advance(absl::Seconds(10));
  EXPECT_EQ(buckets.Take("", kPatient), absl::ZeroDuration());
}

TEST_F(RateBucketTest, AClassHasItsOwnLimitBesideTheCommonOne) {
  RateBuckets buckets = Buckets();
  EXPECT_EQ(buckets.Take("launch", kPatient), absl::ZeroDuration());
  EXPECT_EQ(buckets.Take("", kPatient), absl::Seconds(1));
  EXPECT_EQ(buckets.Take("launch", kPatient), absl::Seconds(12));
}

TEST_F(RateBucketTest, ABurstPassesAndThenTheRateHolds) {
  RateLimits limits;
  limits.all = {absl::Milliseconds(1200), 10, absl::Seconds(5)};
  RateBuckets buckets = Buckets(limits);
  // Never more than 60 in any minute.
  int sent = 0;
  const absl::Duration end = clock_.SinceBoot() + absl::Minutes(1);
  while (true) {
    const absl::Duration wait = buckets.Take("", kPatient);
    if (clock_.SinceBoot() + wait >= end) break;
    clock_.SleepFor(wait);
    ++sent;
  }
  EXPECT_GT(sent, 50);
  EXPECT_LE(sent, 60);
}

TEST_F(RateBucketTest, ClassesThatAreNotListedAreKeptApart) {
  RateLimits limits;
  limits.other = {absl::Seconds(1), 1, absl::Seconds(2)};
  RateBuckets buckets = Buckets(limits);
  EXPECT_EQ(buckets.Take("list", kPatient), absl::ZeroDuration());
  EXPECT_EQ(buckets.Take("show", kPatient), absl::ZeroDuration());
  EXPECT_EQ(buckets.Take("list", kPatient), absl::Seconds(1));
}

TEST_F(RateBucketTest, OtherProcessesShareIt) {
  RateBuckets one = Buckets(), another = Buckets();
  EXPECT_EQ(one.Take("", kPatient), absl::ZeroDuration());
  EXPECT_EQ(another.Take("", kPatient), absl::Seconds(1));
  EXPECT_EQ(one.Take("", kPatient), absl::Seconds(2));
}

TEST_F(RateBucketTest, ThreadsShareItToo) {
  constexpr int kThreads = 4, kEach = 10;
  RateBuckets buckets = Buckets();
  std::vector<std::vector<absl::Duration>> waits(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&buckets, &mine = waits[static_cast<size_t>(i)]] {
      for (int k = 0; k < kEach; ++k) mine.push_back(buckets.Take("", kPatient));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<absl::Duration> all;
  for (const auto& mine : waits) all.insert(all.end(), mine.begin(), mine.end());
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), static_cast<size_t>(kThreads * kEach));
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], i * absl::Seconds(1));
}

TEST_F(RateBucketTest, RefusalsStopEverybody) {
  RateBuckets one = Buckets(), another = Buckets();
  one.Take("", kPatient);
  one.Refused("", absl::Seconds(30));
  EXPECT_EQ(another.Take("", kPatient), absl::Seconds(30));
  clock_.Advance(absl::Minutes(1));
  one.Refused("launch", absl::ZeroDuration());
  EXPECT_EQ(another.Take("launch", kPatient), absl::Seconds(20));
  clock_.Advance(absl::Seconds(2));
  EXPECT_EQ(another.Take("", kPatient), absl::ZeroDuration());
}

TEST_F(RateBucketTest, TakesNothingFromTheImpatient) {
  RateBuckets buckets = Buckets();
  buckets.Refused("", absl::Minutes(3));
  EXPECT_EQ(buckets.Take("", absl::Minutes(1)), absl::Minutes(3));
  EXPECT_EQ(buckets.Take("", absl::Minutes(1)), absl::Minutes(3));
}

TEST_F(RateBucketTest, JumpsOfTheWallClockChangeNothing) {
  RateBuckets buckets = Buckets();
  buckets.Take("launch", kPatient);
  clock_.JumpWall(-absl::Hours(24 * 365));
  EXPECT_EQ(buckets.Take("launch", kPatient), absl::Seconds(12));
  clock_.JumpWall(absl::Hours(48 * 365));
  EXPECT_EQ(buckets.Take("launch", kPatient), absl::Seconds(24));
}

TEST_F(RateBucketTest, AFileThatCannotBeUnderstoodCountsAsFullBuckets) {
  std::string good;
  {
    RateBuckets buckets = Buckets();
    buckets.Take("", kPatient);
    good = ReadFileToString(path_).value();
  }
  std::vector<std::string> bad = {"",
                                  "{",
                                  "null",
                                  "[]",
                                  "{\"boot\":3}",
                                  std::string(100, '\0'),
                                  good.substr(0, good.size() / 2)};
  // This file is of another boot of the machine.
  bad.push_back("{\"boot\":\"another\",\"full_at_ms\":{\"\":99000000}}");
  for (const std::string& text : bad) {
    dir_.Write("rates/lambda", text);
    RateBuckets buckets = Buckets();
    EXPECT_EQ(buckets.Take("", kPatient), absl::ZeroDuration()) << text;
    EXPECT_EQ(buckets.Take("", kPatient), absl::Seconds(1)) << text;
  }
}

TEST_F(RateBucketTest, AFileThatPointsFarAheadDoesNotStopUs) {
  RateBuckets buckets = Buckets();
  buckets.Take("", kPatient);
  std::string text = ReadFileToString(path_).value();
  const size_t number = text.find("1001000");
  ASSERT_NE(number, std::string::npos) << text;
  dir_.Write("rates/lambda", text.replace(number, 7, "900000000000"));
  EXPECT_LE(buckets.Take("", kPatient), absl::Seconds(1));
}

TEST_F(RateBucketTest, WithoutAFileEveryRequestWaits) {
  dir_.Write("rates", "a file where a directory should be");
  RateBuckets buckets = Buckets();
  EXPECT_EQ(buckets.Take("launch", kPatient), absl::Seconds(12));
  EXPECT_EQ(buckets.Take("launch", kPatient), absl::Seconds(12));
}

}  // namespace
}  // namespace gpuctl
