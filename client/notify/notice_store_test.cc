// One of several processes tells an end; a failed message is tried again a few times.
#include "client/notify/notice_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "client/runs/run_store.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kMinute = 60'000;

class NoticeStoreTest : public ::testing::Test {
 protected:
  NoticeStoreTest() : path_(JoinPath(dir_.path(), "state.db")) {
    runs_ = RunStore::Open(path_).value();
    notices_ = NoticeStore::Open(path_).value();
    RunRow row;
    row.run_id = "r-1";
    row.job_id = "j-1";
    row.name = "a";
    EXPECT_OK(runs_->Insert(row));
    EXPECT_OK(notices_->Expect("r-1"));
  }
  bool Claims(int64_t ended_ms, int64_t now_ms) {
    const auto due = notices_->IsDue("r-1", ended_ms, now_ms);
    // Each call as from another process.
    const auto claim = NoticeStore::Open(path_).value()->TryClaim("r-1", ended_ms, now_ms);
    EXPECT_OK(claim);
    if (!claim.ok()) return false;
    EXPECT_EQ(due.value(), claim->has_value());
    return claim.ok() && claim->has_value();
  }

  TempDir dir_;
  const std::string path_;
  std::unique_ptr<RunStore> runs_;
  std::unique_ptr<NoticeStore> notices_;
};

TEST_F(NoticeStoreTest, OneProcessTellsAnEnd) {
  EXPECT_TRUE(Claims(5, 100));
  EXPECT_FALSE(Claims(5, 100));
  EXPECT_OK(notices_->Record("r-1", {"desktop"}, true));
  EXPECT_FALSE(Claims(5, 100 * kMinute));
  EXPECT_OK(notices_->Expect("r-1"));
  EXPECT_FALSE(Claims(5, 100 * kMinute));
}

TEST_F(NoticeStoreTest, AFailedMessageIsTriedAgainLaterAndNotForEver) {
  int64_t now = 100;
  int tries = 0;
  for (int minute = 0; minute < 1000; ++minute, now += kMinute) tries += Claims(5, now) ? 1 : 0;
  EXPECT_EQ(tries, NoticeStore::kMostTries);
  EXPECT_THAT(notices_->Waiting().value(), IsEmpty());
}

TEST_F(NoticeStoreTest, WhatWasSentIsNotSentAgain) {
  ASSERT_TRUE(Claims(5, 0));
  EXPECT_OK(notices_->Record("r-1", {"desktop", "command"}, false));
  EXPECT_FALSE(Claims(5, kMinute / 2));
  const auto claim = notices_->TryClaim("r-1", 5, kMinute);
  ASSERT_TRUE(claim.ok() && claim->has_value());
  EXPECT_THAT((*claim)->sent, ElementsAre("command", "desktop"));
  EXPECT_EQ((*claim)->tries, 2);
}

TEST_F(NoticeStoreTest, AnotherEndIsTold) {
  ASSERT_TRUE(Claims(5, 0));
  EXPECT_OK(notices_->Record("r-1", {"desktop"}, true));
  const auto claim = notices_->TryClaim("r-1", 6, 0);
  ASSERT_TRUE(claim.ok() && claim->has_value());
  EXPECT_THAT((*claim)->sent, IsEmpty());
}

TEST_F(NoticeStoreTest, OnlyExpectedEndsOfKnownRunsWait) {
  EXPECT_FALSE(NoticeStore::Open(path_).value()->TryClaim("r-2", 5, 0)->has_value());
  EXPECT_OK(notices_->Expect("r-2"));
  EXPECT_THAT(notices_->Waiting().value(), IsEmpty());
  RunEnd end;
  end.state = gpuctl::v1::JOB_STATE_FINISHED;
  end.ended_ms = 7;
  EXPECT_OK(runs_->SetEnd("r-1", end));
  EXPECT_THAT(notices_->Waiting().value(), ElementsAre("r-1"));
  ASSERT_TRUE(Claims(7, 0));
  EXPECT_OK(notices_->Record("r-1", {}, true));
  EXPECT_THAT(notices_->Waiting().value(), IsEmpty());
}

}  // namespace
}  // namespace gpuctl
