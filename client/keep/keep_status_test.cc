#include "client/keep/keep_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/keep/keep_log.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kNowMs = 1'790'000'000'000;

TEST(KeepStatus, IsLateAlsoWhenItNeverRanOrHangs) {
  KeepStatus status;
  status.installed_by = "cron";
  status.every = absl::Minutes(5);
  status.installed_ms = kNowMs - 600'000;
  EXPECT_FALSE(IsLate(status, kNowMs));
  status.installed_ms = kNowMs - 3 * 86'400'000;
  EXPECT_TRUE(IsLate(status, kNowMs));
  EXPECT_THAT(StatusText(status, kNowMs), Contains(HasSubstr("and never ran")));
  status.ended_ms = kNowMs - 60'000;
  EXPECT_FALSE(IsLate(status, kNowMs));
  status.running = true;
  status.at_work_since_ms = kNowMs - 3'600'000;
  EXPECT_FALSE(IsLate(status, kNowMs));
  status.at_work_since_ms = kNowMs - 3 * 86'400'000;
  EXPECT_TRUE(IsLate(status, kNowMs));
  EXPECT_THAT(StatusText(status, kNowMs), Contains(HasSubstr("keeps the others waiting")));
}

TEST(KeepStatus, TellsTheLastPassAndItsDeeds) {
  const TempDir dir;
  KeepStatus status;
  ReadLastPass(dir.path(), status);
  EXPECT_THAT(StatusText(status, kNowMs), Contains(HasSubstr("not installed")));
  EXPECT_THAT(StatusText(status, kNowMs), Contains("last pass: none has ended yet"));
  EXPECT_TRUE(StatusJson(status, kNowMs)["last_end"].is_null());
  KeepLog log(dir.path());
  for (int i = 0; i < 12; ++i) {
    ASSERT_OK(log.Deed(kNowMs - 90'000 + i, "pull", "fox-" + std::to_string(i), "brought 1 B"));
  }
  ASSERT_OK(log.Finish(kNowMs - 90'000, kNowMs - 60'000, 117));
  ReadLastPass(dir.path(), status);
  EXPECT_EQ(status.ended_ms, kNowMs - 60'000);
  EXPECT_EQ(status.deeds.size(), 10u);
  EXPECT_THAT(status.deeds.back(), HasSubstr("pull fox-11: brought 1 B"));
  EXPECT_THAT(StatusText(status, kNowMs),
              Contains("last pass: ended 1m 00s ago, after 30s, with exit code 117"));
}

TEST(KeepStatus, IsLateAfterThreePeriods) {
  KeepStatus status;
  status.installed_by = "cron";
  status.every = absl::Minutes(5);
  status.begun_ms = status.ended_ms = kNowMs - 14 * 60'000;
  EXPECT_FALSE(IsLate(status, kNowMs));
  status.ended_ms = kNowMs - 16 * 60'000;
  EXPECT_TRUE(IsLate(status, kNowMs));
  EXPECT_THAT(StatusText(status, kNowMs), Contains(StartsWith("LATE: ")));
  EXPECT_TRUE(StatusJson(status, kNowMs)["late"].get<bool>());
  status.running = true;
  EXPECT_FALSE(IsLate(status, kNowMs)) << "a long pull is no delay";
  status.running = false;
  status.installed_by = "";
  EXPECT_FALSE(IsLate(status, kNowMs));
}

}  // namespace
}  // namespace gpuctl
