#include "client/runs/find_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "client/base/exit_codes.h"
#include "common/base/ids.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

class FindRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = *MakeTempDirectory("gpuctl-find-");
    store_ = *RunStore::Open(JoinPath(dir_, "state.db"));
    console_.format = OutputFormat::kJson;  // says nothing
  }
  void TearDown() override {
    store_.reset();
    (void)RemoveTree(dir_);
  }
  RunRow Insert(const std::string& name, int64_t created_ms, bool ended) {
    RunRow row;
    row.run_id = NewRunId();
    row.job_id = NewJobId();
    row.name = name;
    row.target.provider = row.target.name = "local";
    row.created_ms = created_ms;
    row.spec_json = "{\"x\":1}";
    EXPECT_TRUE(store_->Insert(row).ok());
    RunEnd end;
    end.ended_ms = created_ms + 1;
    if (ended) {
      EXPECT_TRUE(store_->SetEnd(row.run_id, end).ok());
    }
    return row;
  }
  // Finds the run of the command line `args`.
  absl::StatusOr<RunRow> Find(const std::vector<std::string>& args) {
    FlagSet flags("verb [RUN]", "", "");
    std::string reference;
    const FlagSet::Flag run = flags.Option("RUN", reference, kRunOrNewestLive);
    EXPECT_TRUE(flags.Read(args).ok());
    return FindRun(console_, *store_, run, reference);
  }
  std::string dir_;
  std::unique_ptr<RunStore> store_;
  Console console_;
};

TEST_F(FindRunTest, NoNameIsTheNewestLiveRun) {
  Insert("old-1", 10, false);
  const RunRow live = Insert("live-1", 20, false);
  const RunRow ended = Insert("ended-1", 30, true);
  const absl::StatusOr<RunRow> found = Find({});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->run_id, live.run_id);
  EXPECT_EQ(found->spec_json, "{\"x\":1}");  // all of the row, as Get gives it
  EXPECT_EQ(Find({"@last"})->run_id, ended.run_id);
  EXPECT_EQ(Find({"old-1"})->name, "old-1");
  const absl::StatusOr<std::vector<RunRow>> none_named = FindRuns(console_, *store_, {});
  ASSERT_TRUE(none_named.ok() && none_named->size() == 1);
  EXPECT_EQ(none_named->front().run_id, live.run_id);
  const absl::StatusOr<std::vector<RunRow>> two = FindRuns(console_, *store_, {"@last", "old-1"});
  ASSERT_TRUE(two.ok() && two->size() == 2);
  EXPECT_EQ(two->front().run_id, ended.run_id);
}

TEST_F(FindRunTest, NoLiveRunIsAnErrorThatHelps) {
  absl::Status status = Find({}).status();
  EXPECT_EQ(ExitCodeOf(status), kExitUsage);
  EXPECT_THAT(HintOf(status), HasSubstr("gpuctl launch"));
  Insert("ended-1", 30, true);
  status = Find({}).status();
  EXPECT_EQ(ExitCodeOf(status), kExitUsage);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no run is live"));
  EXPECT_THAT(HintOf(status), HasSubstr("@last"));
}

// `gpuctl stop "$RUN"` with an empty variable must not end another run.
TEST_F(FindRunTest, AnEmptyNameIsNoMissingOne) {
  Insert("live-1", 20, false);
  EXPECT_TRUE(absl::IsNotFound(Find({""}).status())) << Find({""}).status();
  EXPECT_FALSE(FindRuns(console_, *store_, {""}).ok());
}

}  // namespace
}  // namespace gpuctl
