#include "client/batch/batch_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/runs/run_store.h"
#include "common/base/ids.h"
#include "common/files/files.h"
#include "common/sqlite/sqlite.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class BatchStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = *MakeTempDirectory("gpuctl-batch-");
    path_ = JoinPath(dir_, "state.db");
    runs_ = *RunStore::Open(path_);
    store_ = *BatchStore::Open(path_);
  }
  void TearDown() override {
    store_.reset();
    runs_.reset();
    (void)RemoveTree(dir_);
  }

  Batch ABatch(const std::string& name, int count, int max_parallel) {
    Batch batch;
    batch.batch_id = absl::StrCat("b-", name);
    batch.name = name;
    batch.digest = "d";
    batch.created_ms = ++made_;
    batch.max_parallel = max_parallel;
    BatchHost host;
    host.host = host.target_name = "gpu1";
    batch.hosts = {host};
    std::vector<Entry> entries;
    for (int i = 1; i <= count; ++i) {
      Entry entry;
      entry.entry_id = absl::StrCat("e-", name, "-", i);
      entry.number = i;
      entry.name = absl::StrCat(name, "-", i);
      entry.parameters = {{"lr", absl::StrCat(i)}, {"text", "a, \"b\""}};
      entry.after = {"run:r-1"};
      if (i == 1) entry.file = "first.yaml";
      entries.push_back(entry);
    }
    EXPECT_TRUE(store_->Insert(batch, entries).ok());
    return batch;
  }

  absl::Status Claim(BatchStore& store, const std::string& entry, const std::string& run,
                     const std::string& machine = "") {
    ClaimRequest request;
    request.entry_id = entry;
    request.run_id = run;
    request.machine = machine;
    return store.Claim(request);
  }

  // Puts the run of an entry into the list of runs.
  void Launch(const std::string& run_id, const std::string& target) {
    RunRow row;
    row.run_id = run_id;
    row.job_id = absl::StrCat("j", run_id);
    row.name = absl::StrCat("run-", run_id);
    row.target.name = target;
    ASSERT_TRUE(runs_->Insert(row).ok());
  }

  void End(const std::string& run_id, EndCause cause = EndCause::kNone) {
    RunEnd end;
    end.state = gpuctl::v1::JOB_STATE_FINISHED;
    end.cause = cause;
    end.ended_ms = 5;
    ASSERT_TRUE(runs_->SetEnd(run_id, end).ok());
  }

  EntryState StateOf(const std::string& entry) { return (*store_->FindEntry(entry))->state; }

  std::string dir_, path_;
  std::unique_ptr<RunStore> runs_;
  std::unique_ptr<BatchStore> store_;
  int64_t made_ = 0;
};

TEST_F(BatchStoreTest, KeepsWhatWasSubmitted) {
  ABatch("sweep", 2, 3);
  store_ = *BatchStore::Open(path_);
  const auto batch = store_->Get("sweep");
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->max_parallel, 3);
  ASSERT_EQ(batch->hosts.size(), 1u);
  const auto entries = store_->Entries(batch->batch_id);
  ASSERT_TRUE(entries.ok() && entries->size() == 2);
  EXPECT_EQ(DescribeParameters((*entries)[1].parameters), "lr=2 text=a, \"b\"");
  EXPECT_THAT((*entries)[1].after, ElementsAre("run:r-1"));
  EXPECT_EQ((*entries)[0].file, "first.yaml");
  EXPECT_EQ((*entries)[1].file, "");
  EXPECT_EQ((*store_->FindEntry("sweep-2"))->entry_id, "e-sweep-2");
  EXPECT_THAT(std::string(store_->Get("swep").status().message()), HasSubstr("sweep"));
}

TEST_F(BatchStoreTest, TheSchedulerOfAnArrayLimitsItsTasks) {
  Batch batch = ABatch("plain", 1, 1);
  batch.batch_id = "b-array";
  batch.name = "array";
  batch.array = true;
  std::vector<Entry> entries(3);
  for (size_t i = 0; i < entries.size(); ++i) {
    entries[i].entry_id = entries[i].name = absl::StrCat("e-", i);
  }
  ASSERT_TRUE(store_->Insert(batch, entries).ok());
  EXPECT_TRUE(store_->Get("array")->array);
  EXPECT_FALSE(store_->Get("plain")->array);
  ASSERT_TRUE(Claim(*store_, "e-0", "r-0").ok());
  EXPECT_EQ(Claim(*store_, "e-1", "r-1").code(), absl::StatusCode::kFailedPrecondition);
  ClaimRequest task;
  task.entry_id = "e-1";
  task.run_id = "r-1";
  task.task = true;
  EXPECT_TRUE(store_->Claim(task).ok());
}

TEST_F(BatchStoreTest, WhatWaitsIsListedAndARunKnowsItsParameters) {
  ABatch("first", 3, 3);
  ABatch("second", 2, 2);
  ASSERT_TRUE(Claim(*store_, "e-first-2", "r-1").ok());
  const auto waiting = store_->ListWaiting(3);
  ASSERT_TRUE(waiting.ok());
  std::vector<std::string> names;
  for (const BatchStore::WaitingEntry& entry : *waiting) names.push_back(entry.name);
  EXPECT_THAT(names, ElementsAre("first-1", "first-3", "second-1"));
  EXPECT_EQ((*waiting)[2].batch, "second");
  EXPECT_EQ(DescribeParameters((*waiting)[1].parameters), "lr=3 text=a, \"b\"");
  EXPECT_EQ(DescribeParameters(store_->ParametersOf("r-1").value()), "lr=2 text=a, \"b\"");
  EXPECT_TRUE(store_->ParametersOf("r-2").value().empty());
}

TEST_F(BatchStoreTest, ANameIsThereOnceAndAFailedInsertLeavesNothing) {
  const Batch batch = ABatch("sweep", 1, 1);
  EXPECT_TRUE(absl::IsAlreadyExists(store_->Insert(batch, {})));
  Batch other = batch;
  other.batch_id = "b-2";
  other.name = "other";
  Entry entry;
  entry.entry_id = "e-2";
  entry.name = "sweep-1";  // taken
  EXPECT_FALSE(store_->Insert(other, {entry}).ok());
  EXPECT_FALSE(store_->Get("other").ok());
  ABatch("third", 1, 1);  // no transaction stayed open
}

TEST_F(BatchStoreTest, WhatIsCalledOffWhileItStartsDoesNotWaitForAnotherStart) {
  ABatch("off", 3, 3);
  ASSERT_TRUE(Claim(*store_, "e-off-1", "r-1").ok());
  ASSERT_TRUE(Claim(*store_, "e-off-2", "r-2").ok());
  EXPECT_EQ(*store_->CancelWaiting({"e-off-1", "e-off-3"}, kCancelledByUser), 1);
  EXPECT_EQ((*store_->FindEntry("off-1"))->state, EntryState::kStarting);
  ASSERT_TRUE(store_->Release("e-off-1", "r-1", "nothing on offer", 0, true).ok());
  ASSERT_TRUE(store_->Release("e-off-2", "r-2", "nothing on offer", 0, true).ok());
  EXPECT_EQ((*store_->FindEntry("off-1"))->state, EntryState::kCancelled);
  EXPECT_EQ((*store_->FindEntry("off-1"))->why, kCancelledByUser);
  EXPECT_EQ((*store_->FindEntry("off-2"))->state, EntryState::kWaiting);
  EXPECT_EQ((*store_->FindEntry("off-2"))->why, "nothing on offer");
}

TEST_F(BatchStoreTest, AnotherBatchTakesTheName) {
  const Batch before = ABatch("sweep", 3, 2);
  ASSERT_TRUE(Claim(*store_, "e-sweep-1", "r-1").ok());
  Batch batch = before;
  batch.batch_id = "b-new";
  batch.digest = "other";
  Entry entry;
  entry.entry_id = "e-new";
  entry.number = 4;
  entry.name = "sweep-4";
  const absl::StatusOr<ReplacedBatch> replaced = store_->Replace(batch, {entry}, before.batch_id);
  ASSERT_TRUE(replaced.ok()) << replaced.status();
  EXPECT_EQ(replaced->name, "sweep.old");
  EXPECT_EQ(replaced->cancelled, 2);
  EXPECT_EQ(replaced->live, 1);
  EXPECT_EQ(store_->Get("sweep")->batch_id, "b-new");
  EXPECT_EQ(store_->Get("sweep.old")->batch_id, before.batch_id);
  EXPECT_EQ((*store_->FindEntry("sweep-1"))->state, EntryState::kStarting);
  EXPECT_EQ((*store_->FindEntry("sweep-2"))->why, kReplacedByUser);
  // What was being started then does not wait for another start.
  ASSERT_TRUE(store_->Release("e-sweep-1", "r-1", "nothing on offer", 0, true).ok());
  EXPECT_EQ((*store_->FindEntry("sweep-1"))->state, EntryState::kCancelled);
  EXPECT_EQ((*store_->FindEntry("sweep-1"))->why, kReplacedByUser);
  // What another process replaced meanwhile is left alone, and so is its name.
  batch.batch_id = "b-late";
  entry.entry_id = "e-late";
  entry.name = "sweep-5";
  EXPECT_TRUE(absl::IsAlreadyExists(store_->Replace(batch, {entry}, before.batch_id).status()));
  EXPECT_EQ(store_->Get("sweep")->batch_id, "b-new");
  EXPECT_EQ(store_->List(/*open_only=*/false)->size(), 2u);
  EXPECT_FALSE((*store_->FindEntry("sweep-5")).has_value());
  // An entry whose name is taken leaves all as it was.
  entry.name = "sweep-1";
  EXPECT_FALSE(store_->Replace(batch, {entry}, "b-new").ok());
  EXPECT_EQ((*store_->FindEntry("sweep-4"))->state, EntryState::kWaiting);
  entry.name = "sweep-5";
  EXPECT_EQ(store_->Replace(batch, {entry}, "b-new")->name, "sweep.old2");
}

TEST_F(BatchStoreTest, AnEntryIsClaimedOnce) {
  ABatch("sweep", 1, 9);
  std::vector<std::thread> claimers;
  std::atomic<int> claimed{0};
  for (int i = 0; i < 8; ++i) {
    claimers.emplace_back([&, i] {
      const auto mine = BatchStore::Open(path_);
      if (mine.ok() && Claim(**mine, "e-sweep-1", absl::StrCat("r-", i)).ok()) ++claimed;
    });
  }
  for (std::thread& claimer : claimers) claimer.join();
  EXPECT_EQ(claimed, 1);
  EXPECT_EQ(StateOf("sweep-1"), EntryState::kStarting);
}

TEST_F(BatchStoreTest, NoMoreAreClaimedThanMayRunAtOnce) {
  ABatch("sweep", 4, 2);
  ASSERT_TRUE(Claim(*store_, "e-sweep-1", "r-1").ok());
  ASSERT_TRUE(Claim(*store_, "e-sweep-2", "r-2").ok());
  EXPECT_FALSE(Claim(*store_, "e-sweep-3", "r-3").ok());
  Launch("r-1", "vast/1");
  ASSERT_TRUE(store_->MarkStarted("e-sweep-1", "r-1").ok());
  EXPECT_FALSE(Claim(*store_, "e-sweep-3", "r-3").ok());
  End("r-1");
  EXPECT_TRUE(Claim(*store_, "e-sweep-3", "r-3").ok());
  ASSERT_TRUE(store_->Release("e-sweep-2", "r-2", "no room", 0, true).ok());
  EXPECT_TRUE(Claim(*store_, "e-sweep-4", "r-4").ok());
  EXPECT_EQ((*store_->FindEntry("sweep-2"))->failures, 1);
}

TEST_F(BatchStoreTest, OnlyWhatWaitsIsCancelled) {
  ABatch("sweep", 3, 9);
  ASSERT_TRUE(Claim(*store_, "e-sweep-2", "r-2").ok());
  const auto cancelled =
      store_->CancelWaiting({"e-sweep-1", "e-sweep-2", "e-sweep-3", "e-nothing"}, "by you");
  ASSERT_TRUE(cancelled.ok());
  EXPECT_EQ(*cancelled, 2);
  EXPECT_EQ(StateOf("sweep-2"), EntryState::kStarting);
  EXPECT_EQ((*store_->FindEntry("sweep-3"))->why, "by you");
}

TEST_F(BatchStoreTest, AStopIsWishedOnlyOfWhatIsBeingStarted) {
  ABatch("sweep", 3, 9);
  EXPECT_FALSE(*store_->WishStop("e-sweep-1")) << "it waits";
  ASSERT_TRUE(Claim(*store_, "e-sweep-1", "r-1").ok());
  EXPECT_FALSE(*store_->IsStopWished("r-1"));
  EXPECT_TRUE(*store_->WishStop("e-sweep-1"));
  EXPECT_TRUE(*store_->WishStop("e-sweep-1"));
  EXPECT_TRUE(*store_->IsStopWished("r-1"));
  // Its start comes to nothing.
  ASSERT_TRUE(store_->Release("e-sweep-1", "r-1", "no room", 0, true).ok());
  EXPECT_EQ(StateOf("sweep-1"), EntryState::kCancelled);
  EXPECT_EQ((*store_->FindEntry("sweep-1"))->why, kCancelledByUser);
  // A start of another entry is not meant.
  ASSERT_TRUE(Claim(*store_, "e-sweep-2", "r-2").ok());
  ASSERT_TRUE(store_->Release("e-sweep-2", "r-2", "no room", 0, true).ok());
  EXPECT_EQ(StateOf("sweep-2"), EntryState::kWaiting);
  EXPECT_EQ((*store_->FindEntry("sweep-2"))->why, "no room");
  ASSERT_TRUE(Claim(*store_, "e-sweep-3", "r-3").ok());
  ASSERT_TRUE(store_->MarkStarted("e-sweep-3", "r-3").ok());
  EXPECT_FALSE(*store_->WishStop("e-sweep-3")) << "it has started";
}

TEST_F(BatchStoreTest, AMachineHasOneRun) {
  ABatch("sweep", 3, 9);
  ASSERT_TRUE(Claim(*store_, "e-sweep-1", "r-1", "gpu1").ok());
  EXPECT_FALSE(Claim(*store_, "e-sweep-2", "r-2", "gpu1").ok());
  EXPECT_TRUE(Claim(*store_, "e-sweep-2", "r-2", "gpu2").ok());
  ClaimRequest sharing;
  sharing.entry_id = "e-sweep-3";
  sharing.run_id = "r-4";
  sharing.machine = "gpu1";
  sharing.shares = true;
  ASSERT_TRUE(store_->Claim(sharing).ok());
  ASSERT_TRUE(store_->Release("e-sweep-3", "r-4", "", 0, false).ok());
  // So does a run of the user's own.
  Launch("r-9", "gpu3");
  EXPECT_FALSE(Claim(*store_, "e-sweep-3", "r-3", "gpu3").ok());
  End("r-9");
  EXPECT_TRUE(Claim(*store_, "e-sweep-3", "r-3", "gpu3").ok());
}

TEST_F(BatchStoreTest, TheCostLimitHoldsInTheClaim) {
  Batch batch = ABatch("sweep", 2, 9);
  batch.max_cost_usd = 10;
  ASSERT_TRUE(store_->SetLimits(batch).ok());
  ClaimRequest request;
  request.entry_id = "e-sweep-1";
  request.run_id = "r-1";
  request.reserved_usd = 6;
  request.check_cost = [&request](double max_cost_usd, const std::vector<Attempt>& attempts) {
    double sum = request.reserved_usd;
    for (const Attempt& attempt : attempts) sum += attempt.open ? attempt.reserved_usd : 0;
    return sum <= max_cost_usd ? absl::OkStatus() : absl::ResourceExhaustedError("too much");
  };
  ASSERT_TRUE(store_->Claim(request).ok());
  request.entry_id = "e-sweep-2";
  request.run_id = "r-2";
  EXPECT_TRUE(absl::IsResourceExhausted(store_->Claim(request)));
  request.reserved_usd = 4;
  EXPECT_TRUE(store_->Claim(request).ok());
}

TEST_F(BatchStoreTest, ALateReleaseOrEndChangesNothingOfAnotherStart) {
  ABatch("sweep", 1, 9);
  ASSERT_TRUE(Claim(*store_, "e-sweep-1", "r-1").ok());
  EXPECT_FALSE(*store_->EndWaiting("e-sweep-1", EntryState::kCancelled, "by you"));
  ASSERT_TRUE(store_->Release("e-sweep-1", "r-1", "", 0, false).ok());
  ASSERT_TRUE(Claim(*store_, "e-sweep-1", "r-2").ok());
  ASSERT_TRUE(store_->Release("e-sweep-1", "r-1", "late", 0, false).ok());
  ASSERT_TRUE(store_->MarkStarted("e-sweep-1", "r-1").ok());
  EXPECT_EQ(StateOf("sweep-1"), EntryState::kStarting);
  ASSERT_TRUE(store_->Release("e-sweep-1", "r-2", "", 0, false).ok());
  EXPECT_TRUE(*store_->EndWaiting("e-sweep-1", EntryState::kCancelled, "by you"));
  EXPECT_FALSE(Claim(*store_, "e-sweep-1", "r-3").ok());
}

TEST_F(BatchStoreTest, APreemptedRunThatIsResumedKeepsItsPlace) {
  Batch batch;
  batch.batch_id = "b";
  batch.name = "spot";
  batch.max_parallel = 1;
  Entry first, second;
  first.entry_id = "e1";
  first.name = "spot-1";
  first.resumes = 1;
  second.entry_id = "e2";
  second.name = "spot-2";
  ASSERT_TRUE(store_->Insert(batch, {first, second}).ok());
  ASSERT_TRUE(Claim(*store_, "e1", "r-1").ok());
  Launch("r-1", "vast/1");
  ASSERT_TRUE(store_->MarkStarted("e1", "r-1").ok());
  End("r-1", EndCause::kPreempted);
  EXPECT_FALSE(Claim(*store_, "e2", "r-2").ok());
  Launch("r-5", "vast/2");
  ASSERT_TRUE(store_->Follow("e1", "r-1", "r-5").ok());
  ASSERT_TRUE(store_->Follow("e1", "r-1", "r-5").ok());
  EXPECT_EQ((*store_->FindEntry("e1"))->followed, 1);
  EXPECT_EQ(store_->Attempts("b")->size(), 2u);
  EXPECT_FALSE(Claim(*store_, "e2", "r-2").ok());
  End("r-5", EndCause::kPreempted);
  EXPECT_TRUE(Claim(*store_, "e2", "r-2").ok());
}

TEST_F(BatchStoreTest, ARunThatNobodyResumesIsOver) {
  Batch batch;
  batch.batch_id = "b";
  batch.name = "spot";
  Entry entry;
  entry.entry_id = "e1";
  entry.name = "spot-1";
  entry.resumes = 2;
  ASSERT_TRUE(store_->Insert(batch, {entry}).ok());
  ASSERT_TRUE(Claim(*store_, "e1", "r-1").ok());
  Launch("r-1", "vast/1");
  ASSERT_TRUE(store_->MarkStarted("e1", "r-1").ok());
  End("r-1", EndCause::kPreempted);
  EXPECT_EQ(store_->List(/*open_only=*/true)->size(), 1u);
  ASSERT_TRUE(store_->EndResumes("e1", "r-0").ok());
  EXPECT_EQ(store_->List(/*open_only=*/true)->size(), 1u) << "another run has the entry";
  ASSERT_TRUE(store_->EndResumes("e1", "r-1").ok());
  EXPECT_EQ(store_->List(/*open_only=*/true)->size(), 0u);
}

TEST_F(BatchStoreTest, OpenBatchesAreThoseOfWhichSomethingIsToCome) {
  ABatch("one", 1, 1);
  ABatch("two", 1, 1);
  EXPECT_EQ(store_->List(/*open_only=*/true)->size(), 2u);
  ASSERT_TRUE(*store_->EndWaiting("e-one-1", EntryState::kCancelled, ""));
  ASSERT_TRUE(Claim(*store_, "e-two-1", "r-1").ok());
  Launch("r-1", "gpu1");
  ASSERT_TRUE(store_->MarkStarted("e-two-1", "r-1").ok());
  EXPECT_EQ(store_->List(true)->size(), 1u);
  End("r-1");
  EXPECT_EQ(store_->List(true)->size(), 0u);
  EXPECT_EQ(store_->List(false)->size(), 2u);
}

TEST_F(BatchStoreTest, ABatchThatIsOverIsForgottenAndItsNameFree) {
  ABatch("sweep", 2, 2);
  const auto refused = [this](const std::string& why) {
    EXPECT_THAT(store_->Forget("b-sweep"), StatusIs(absl::StatusCode::kFailedPrecondition, why));
    EXPECT_EQ(store_->Entries("b-sweep")->size(), 2u);
  };
  refused("sweep-1 is not over");
  ASSERT_TRUE(Claim(*store_, "e-sweep-1", "r-1").ok());
  ASSERT_TRUE(*store_->EndWaiting("e-sweep-2", EntryState::kCancelled, "by you"));
  refused("sweep-1 is not over");  // it is being started
  Launch("r-1", "gpu1");
  ASSERT_TRUE(store_->MarkStarted("e-sweep-1", "r-1").ok());
  refused("sweep-1 is not over");
  End("r-1");
  ABatch("other", 1, 1);
  ASSERT_TRUE(store_->Forget("b-sweep").ok());
  EXPECT_TRUE(absl::IsNotFound(store_->Get("sweep").status()));
  EXPECT_FALSE(store_->FindEntry("sweep-2")->has_value());
  EXPECT_EQ(store_->Attempts("b-sweep")->size(), 0u);
  EXPECT_TRUE(absl::IsNotFound(store_->Forget("b-sweep")));
  // Nothing of the one before is in a new one of that name.
  EXPECT_EQ(store_->List(/*open_only=*/false)->size(), 1u);
  ABatch("sweep", 2, 2);
  EXPECT_EQ(store_->Get("sweep")->hosts.size(), 1u);
  EXPECT_EQ((*store_->FindEntry("sweep-1"))->run_id, "");
  EXPECT_FALSE(Claim(*store_, "e-none", "r-2").ok());
}

TEST_F(BatchStoreTest, ABatchForWhichAnotherWaitsOrWhichIsResumedStays) {
  ABatch("first", 1, 1);
  ASSERT_TRUE(*store_->EndWaiting("e-first-1", EntryState::kCancelled, "by you"));
  Batch batch;
  batch.batch_id = "b-next";
  batch.name = "next";
  Entry entry;
  entry.entry_id = "e-next";
  entry.name = "next-1";
  entry.resumes = 1;
  entry.after = {"entry:e-first-1"};
  ASSERT_TRUE(store_->Insert(batch, {entry}).ok());
  EXPECT_THAT(store_->Forget("b-first"), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                  "next-1 waits, and comes after first-1"));
  ASSERT_TRUE(Claim(*store_, "e-next", "r-1").ok());
  EXPECT_TRUE(store_->Forget("b-first").ok());
  Launch("r-1", "vast/1");
  ASSERT_TRUE(store_->MarkStarted("e-next", "r-1").ok());
  End("r-1", EndCause::kPreempted);
  // gpuctl keep resumes it.
  EXPECT_THAT(store_->Forget("b-next"),
              StatusIs(absl::StatusCode::kFailedPrecondition, "next-1 is not over"));
}

TEST_F(BatchStoreTest, AScheduleIsForgottenOnceItHasEnded) {
  Batch batch;
  batch.batch_id = "b-night";
  batch.name = "night";
  Schedule schedule;
  schedule.batch_id = "b-night";
  schedule.cron = "0 3 * * *";
  ASSERT_TRUE(store_->InsertScheduled(batch, schedule).ok());
  EXPECT_THAT(store_->Forget("b-night"),
              StatusIs(absl::StatusCode::kFailedPrecondition, "its schedule goes on"));
  ASSERT_TRUE(*store_->EndSchedule("b-night"));
  ASSERT_TRUE(store_->Forget("b-night").ok());
  EXPECT_TRUE(store_->Schedules()->empty());
}

TEST_F(BatchStoreTest, AMachineThatFailsWaitsAndASuccessForgetsIt) {
  ABatch("sweep", 1, 1);
  ASSERT_TRUE(store_->SetHost("b-sweep", "gpu1", "no answer", 500, 1).ok());
  ASSERT_TRUE(store_->SetHost("b-sweep", "gpu1", "no answer", 900, 2).ok());
  BatchHost host = store_->Get("sweep")->hosts[0];
  EXPECT_EQ(host.failures, 2);
  EXPECT_EQ(host.not_before_ms, 900);
  ASSERT_TRUE(store_->SetHost("b-sweep", "gpu1", "", 0, 0).ok());
  host = store_->Get("sweep")->hosts[0];
  EXPECT_EQ(host.failures, 0);
  EXPECT_EQ(host.not_before_ms, 0);
}

TEST_F(BatchStoreTest, TheLimitOfFailuresIsKeptAlsoInAnOlderDatabase) {
  Batch batch = ABatch("one", 1, 1);
  EXPECT_EQ(store_->Get("one")->max_failures, 0);
  batch.max_failures = 3;
  ASSERT_TRUE(store_->SetLimits(batch).ok());
  EXPECT_EQ(store_->Get("one")->max_failures, 3);
  // As a gpuctl left it that did not know the column.
  store_.reset();
  sqlite3* database = *OpenSqlite(path_, "open");
  ASSERT_TRUE(SqliteExecute(database, "ALTER TABLE batches DROP COLUMN max_failures", "drop").ok());
  sqlite3_close(database);
  store_ = *BatchStore::Open(path_);
  ASSERT_TRUE(store_->Get("one").ok());
  EXPECT_EQ(store_->Get("one")->max_failures, 0);
  ASSERT_TRUE(store_->SetLimits(batch).ok());
  EXPECT_EQ((*BatchStore::Open(path_))->Get("one")->max_failures, 3);
}

}  // namespace
}  // namespace gpuctl
