// Schedules in the store: one entry for each time, whoever asks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/batch/batch_store.h"
#include "client/runs/run_store.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class BatchSchedulesTest : public ::testing::Test {
 protected:
  BatchSchedulesTest() {
    runs_ = RunStore::Open(path_).value();
    store_ = BatchStore::Open(path_).value();
    batch_.batch_id = "b-1";
    batch_.name = "nightly";
    batch_.digest = "d";
    schedule_.batch_id = "b-1";
    schedule_.cron = "0 3 * * *";
    schedule_.launch_json = "{}";
    schedule_.next_ms = 1000;
  }
  Schedule Stored() { return store_->Schedules()->at("b-1"); }
  std::vector<Entry> Entries() { return store_->Entries("b-1").value(); }
  static absl::StatusOr<Entry> Make(const std::string& name) {
    Entry entry;
    entry.entry_id = absl::StrCat("e-", name);
    entry.launch_json = "{}";
    return entry;
  }
  absl::StatusOr<bool> Due(const Schedule& seen, int64_t next_ms) {
    return store_->MakeDue(seen, "nightly", next_ms, Make);
  }

  TempDir dir_;
  const std::string path_ = dir_.Sub("state.db");
  std::unique_ptr<RunStore> runs_;
  std::unique_ptr<BatchStore> store_;
  Batch batch_;
  Schedule schedule_;
};

TEST_F(BatchSchedulesTest, OneEntryForEachTime) {
  ASSERT_OK(store_->InsertScheduled(batch_, schedule_));
  EXPECT_TRUE(absl::IsAlreadyExists(store_->InsertScheduled(batch_, schedule_)));
  EXPECT_THAT(*store_->List(/*open_only=*/true), SizeIs(1));
  EXPECT_THAT(Entries(), IsEmpty());
  EXPECT_TRUE(*Due(schedule_, 2000));
  EXPECT_FALSE(*Due(schedule_, 2000));  // it was seen before another process took it
  ASSERT_THAT(Entries(), SizeIs(1));
  EXPECT_EQ(Entries()[0].name, "nightly-1");
  EXPECT_EQ(Stored().next_ms, 2000);
  EXPECT_EQ(Stored().last_ms, 1000);
}

TEST_F(BatchSchedulesTest, ATimeGoesByWhileTheRunBeforeIsNotOver) {
  ASSERT_OK(store_->InsertScheduled(batch_, schedule_));
  EXPECT_TRUE(*Due(Stored(), 2000));
  EXPECT_FALSE(*Due(Stored(), 3000));
  EXPECT_EQ(Stored().next_ms, 3000);
  EXPECT_EQ(Stored().why, "nightly-1 was not over");
  ASSERT_TRUE(*store_->EndWaiting(Entries()[0].entry_id, EntryState::kFailed, "x"));
  EXPECT_TRUE(*Due(Stored(), 4000));
  EXPECT_EQ(Stored().why, "");
  EXPECT_THAT(Entries(), SizeIs(2));
  // With overlap it comes all the same.
  schedule_.overlap = true;
  schedule_.next_ms = 5000;
  ASSERT_OK(store_->ReplaceSchedule(batch_, schedule_));
  EXPECT_TRUE(*Due(Stored(), 6000));
  EXPECT_THAT(Entries(), SizeIs(3));
}

TEST_F(BatchSchedulesTest, AnEndedOneStartsNothingUntilItIsSubmittedAgain) {
  ASSERT_OK(store_->InsertScheduled(batch_, schedule_));
  EXPECT_TRUE(*store_->EndSchedule("b-1"));
  EXPECT_FALSE(*store_->EndSchedule("b-1"));
  EXPECT_FALSE(*Due(schedule_, 2000));
  EXPECT_THAT(Entries(), IsEmpty());
  EXPECT_THAT(*store_->List(/*open_only=*/true), IsEmpty());
  ASSERT_OK(store_->ReplaceSchedule(batch_, schedule_));
  EXPECT_TRUE(*Due(Stored(), 2000));
}

TEST_F(BatchSchedulesTest, AFailureWithinTheTransactionLeavesTheTimeDue) {
  ASSERT_OK(store_->InsertScheduled(batch_, schedule_));
  const auto failed = store_->MakeDue(Stored(), "nightly", 2000, [](const std::string&) {
    return absl::StatusOr<Entry>(absl::InternalError("no"));
  });
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(Stored().next_ms, 1000);
  EXPECT_TRUE(*Due(Stored(), 2000));
}

TEST_F(BatchSchedulesTest, ManyAtOnceMakeOne) {
  schedule_.overlap = true;
  ASSERT_OK(store_->InsertScheduled(batch_, schedule_));
  for (int64_t time = 1000; time < 11'000; time += 1000) {
    const Schedule seen = Stored();
    std::atomic<int> made{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        const auto store = BatchStore::Open(path_);
        const auto done = (*store)->MakeDue(
            seen, "nightly", time + 1000,
            [i](const std::string& name) { return Make(absl::StrCat(name, "-", i)); });
        if (done.ok() && *done) ++made;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(made, 1);
  }
  EXPECT_THAT(Entries(), SizeIs(10));
}

}  // namespace
}  // namespace gpuctl
