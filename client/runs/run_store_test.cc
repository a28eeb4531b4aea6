#include "client/runs/run_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "common/base/ids.h"
#include "common/files/files.h"
#include "common/sqlite/sqlite.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

class RunStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = *MakeTempDirectory("gpuctl-store-");
    path_ = JoinPath(dir_, "state/state.db");
    store_ = *RunStore::Open(path_);
  }
  void TearDown() override {
    store_.reset();
    (void)RemoveTree(dir_);
  }
  RunRow Row(const std::string& name) {
    RunRow row;
    row.run_id = NewRunId();
    row.name = name;
    row.job_id = NewJobId();
    row.target.provider = "ssh";
    row.target.name = "ada@host:2222";
    row.target.port = 2222;
    row.target.identity_files = {"/keys/a"};
    row.spec_json = "{}";
    row.artifact_patterns = {"out/*"};
    row.output_segment_bytes = 1024;
    row.created_ms = 1000;
    return row;
  }
  std::string dir_, path_;
  std::unique_ptr<RunStore> store_;
};

TEST_F(RunStoreTest, KeepsWhatItIsGiven) {
  RunRow row = Row("amber-fox-3");
  ASSERT_TRUE(store_->Insert(row).ok());
  ASSERT_TRUE(store_->SetAccepted(row.run_id, "node-1", 2000).ok());
  ASSERT_TRUE(store_->SetAccepted(row.run_id, "node-1", 3000).ok());
  ASSERT_TRUE(store_->SetProgress(row.run_id, 10, 200, 1.5).ok());
  RunEnd end{"JOB_STATE_FINISHED", 3, 3, "job", "", 4000};
  ASSERT_TRUE(store_->SetEnd(row.run_id, end).ok());
  end.exit_code = 9;
  ASSERT_TRUE(store_->SetEnd(row.run_id, end).ok());
  store_ = *RunStore::Open(path_);
  const auto found = store_->Get("amber-fox-3");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->run_id, row.run_id);
  EXPECT_EQ(found->target.name, "ada@host:2222");
  EXPECT_EQ(found->target.port, 2222);
  EXPECT_EQ(found->target.identity_files, row.target.identity_files);
  EXPECT_EQ(found->node_id, "node-1");
  EXPECT_EQ(found->accepted_ms, 2000);
  EXPECT_EQ(found->heard_ms, 3000);
  EXPECT_EQ(found->step, 10);
  EXPECT_EQ(found->loss, 1.5);
  EXPECT_EQ(found->artifact_patterns, row.artifact_patterns);
  ASSERT_TRUE(found->end.has_value());
  EXPECT_EQ(found->end->exit_code, 3);  // the first end stays
  EXPECT_TRUE(store_->List(/*live_only=*/true)->empty());
}

TEST_F(RunStoreTest, MakesTakenNamesUnique) {
  RunRow first = Row("sft"), second = Row("sft"), third = Row("sft");
  ASSERT_TRUE(store_->Insert(first).ok());
  ASSERT_TRUE(store_->Insert(second).ok());
  ASSERT_TRUE(store_->Insert(third).ok());
  EXPECT_EQ(second.name, "sft-2");
  EXPECT_EQ(third.name, "sft-3");
  // The whole name is nobody's mere prefix.
  EXPECT_EQ(store_->Get("sft")->run_id, first.run_id);
}

TEST_F(RunStoreTest, ResolvesPrefixesAndNamesTheNearest) {
  RunRow fox = Row("amber-fox-3"), owl = Row("amber-owl-7");
  ASSERT_TRUE(store_->Insert(fox).ok());
  ASSERT_TRUE(store_->Insert(owl).ok());
  EXPECT_EQ(store_->Get("amber-f")->run_id, fox.run_id);
  EXPECT_EQ(store_->Get(owl.run_id)->run_id, owl.run_id);
  EXPECT_EQ(store_->Get(owl.job_id)->run_id, owl.run_id);
  EXPECT_EQ(store_->Get(absl::string_view(owl.run_id).substr(0, 10))->run_id, owl.run_id);
  const absl::Status ambiguous = store_->Get("amber").status();
  EXPECT_THAT(ambiguous.message(), HasSubstr("ambiguous"));
  EXPECT_THAT(ambiguous.message(), HasSubstr("amber-owl-7"));
  EXPECT_EQ(ExitCodeOf(ambiguous), kExitUsage);
  const absl::Status unknown = store_->Get("amber-fxo-3").status();
  EXPECT_THAT(unknown.message(), HasSubstr("did you mean \"amber-fox-3\"?"));
  EXPECT_EQ(ExitCodeOf(unknown), kExitUsage);
  EXPECT_FALSE(store_->Get("").ok());
}

TEST_F(RunStoreTest, HasOneClientId) {
  const std::string id = *store_->ClientId();
  EXPECT_TRUE(IsValidId(id));
  EXPECT_EQ(*(*RunStore::Open(path_))->ClientId(), id);
}

TEST_F(RunStoreTest, ServesSeveralWriters) {
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([this] {
      const auto store = RunStore::Open(path_);
      ASSERT_TRUE(store.ok()) << store.status();
      for (int i = 0; i < 10; ++i) {
        RunRow row = Row("same");
        EXPECT_TRUE((*store)->Insert(row).ok());
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(store_->List()->size(), 40u);
}

TEST_F(RunStoreTest, SurvivesAnotherProcessCreatingItAtOnce) {
  const std::string path = JoinPath(dir_, "fresh.db");
  std::vector<std::thread> openers;
  for (int i = 0; i < 8; ++i) {
    openers.emplace_back([&path] {
      const auto store = RunStore::Open(path);
      EXPECT_TRUE(store.ok()) << store.status();
    });
  }
  for (std::thread& opener : openers) opener.join();
}

TEST_F(RunStoreTest, RefusesAnotherSchema) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
  sqlite3_exec(database, "PRAGMA user_version = 99", nullptr, nullptr, nullptr);
  sqlite3_close(database);
  const auto store = RunStore::Open(path_);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(HintOf(store.status()), HasSubstr("newer gpuctl"));
}

TEST_F(RunStoreTest, TakesOverTheRunsOfVersion1) {
  RunRow old = Row("old");
  ASSERT_TRUE(store_->Insert(old).ok());
  store_.reset();
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(database,
                         "ALTER TABLE specs DROP COLUMN launch;"
                         "ALTER TABLE specs DROP COLUMN resumed_from;"
                         "PRAGMA user_version = 1",
                         nullptr, nullptr, nullptr),
            SQLITE_OK);
  sqlite3_close(database);
  std::vector<std::thread> openers;
  for (int i = 0; i < 4; ++i) {
    openers.emplace_back([this] {
      const auto store = RunStore::Open(path_);
      EXPECT_TRUE(store.ok()) << store.status();
    });
  }
  for (std::thread& opener : openers) opener.join();
  store_ = *RunStore::Open(path_);
  const auto row = store_->Get(old.run_id);
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->name, "old");
  EXPECT_EQ(row->spec_json, "{}");
  EXPECT_EQ(row->launch_json, "");
  EXPECT_EQ(row->resumed_from, "");
  RunRow next = Row("new");
  next.launch_json = "{\"a\":1}";
  next.resumed_from = old.run_id;
  ASSERT_TRUE(store_->Insert(next).ok());
  EXPECT_EQ(store_->Get(next.run_id)->launch_json, next.launch_json);
  EXPECT_EQ(store_->Get(next.run_id)->resumed_from, old.run_id);
}

TEST_F(RunStoreTest, ReportsAFileThatIsNoDatabase) {
  const std::string path = JoinPath(dir_, "text.db");
  ASSERT_TRUE(WriteFileAtomic(path, std::string(4096, 'x')).ok());
  EXPECT_EQ(RunStore::Open(path).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace gpuctl
