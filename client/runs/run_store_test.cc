#include "client/runs/run_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <limits>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "common/base/ids.h"
#include "common/files/files.h"
#include "common/sqlite/sqlite.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
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
    row.ports = {"6006", "80:8080"};
    row.output_segment_bytes = 1024;
    row.created_ms = 1000;
    return row;
  }
  std::string dir_, path_;
  std::unique_ptr<RunStore> store_;
};

TEST_F(RunStoreTest, KeepsLossesThatAreNotFinite) {
  RunRow row = Row("amber-fox-3");
  ASSERT_TRUE(store_->Insert(row).ok());
  for (const double loss : {std::nan(""), std::numeric_limits<double>::infinity(), 0.5}) {
    ASSERT_TRUE(store_->SetProgress(row.run_id, 10, 200, loss).ok());
    const auto found = store_->Get(row.run_id);
    ASSERT_TRUE(found.ok() && found->loss.has_value());
    EXPECT_TRUE(found->loss == loss || (std::isnan(*found->loss) && std::isnan(loss))) << loss;
  }
}

TEST_F(RunStoreTest, MembersAreInNoListAndHaveTheNamesThatTheyAreGiven) {
  RunRow run = Row("train");
  ASSERT_TRUE(store_->Insert(run).ok());
  for (const int rank : {2, 1}) {
    RunRow member = Row(absl::StrCat(run.name, ".node", rank));
    member.leader = run.run_id;
    member.rank = rank;
    ASSERT_TRUE(store_->Insert(member).ok());
    EXPECT_EQ(member.name, absl::StrCat("train-1.node", rank));
  }
  store_ = *RunStore::Open(path_);
  const auto members = store_->Members(run.run_id);
  ASSERT_TRUE(members.ok());
  ASSERT_EQ(members->size(), 2u);
  EXPECT_EQ(members->front().name, "train-1.node1");
  EXPECT_EQ(members->front().rank, 1);
  EXPECT_EQ(members->front().leader, run.run_id);
  std::vector<std::string> ids;
  for (const RunRow& member : *members) ids.push_back(member.run_id);
  EXPECT_EQ(*store_->MemberIds(run.run_id), ids);
  EXPECT_THAT(*store_->AllMemberIds(), ElementsAre(testing::Pair(run.run_id, ids)));
  EXPECT_EQ(store_->Members(members->front().run_id)->size(), 0u);
  for (const bool live : {false, true}) {
    ASSERT_EQ(store_->List(live)->size(), 1u);
    EXPECT_EQ(store_->List(live)->front().run_id, run.run_id);
  }
  RunFilter filter;
  filter.prefix = "train";
  EXPECT_EQ(store_->List(filter)->size(), 1u);
  for (const char* reference : {"train", "train-1", "@last", "tra"}) {
    EXPECT_EQ(store_->Get(reference)->run_id, run.run_id) << reference;
  }
  RunFilter others;
  others.members = others.live_only = true;
  EXPECT_EQ(store_->List(others)->size(), 2u);
  EXPECT_EQ(store_->List(others)->front().leader, run.run_id);
  EXPECT_EQ(store_->Get("train-1.node2")->rank, 2);
  EXPECT_FALSE(store_->Get("train-1.node").ok());
  RunRow next = Row("train");
  ASSERT_TRUE(store_->Insert(next).ok());
  EXPECT_EQ(next.name, "train-2");
}

TEST_F(RunStoreTest, KeepsWhatItIsGiven) {
  RunRow row = Row("amber-fox-3");
  ASSERT_TRUE(store_->Insert(row).ok());
  ASSERT_TRUE(store_->SetAccepted(row.run_id, "node-1", 2000).ok());
  ASSERT_TRUE(store_->SetAccepted(row.run_id, "node-1", 3000).ok());
  ASSERT_TRUE(store_->SetProgress(row.run_id, 10, 200, 1.5).ok());
  RunEnd end{gpuctl::v1::JOB_STATE_FINISHED, 3, 3, EndSource::kJob, EndCause::kNone, "", 4000};
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
  EXPECT_EQ(found->ports, row.ports);
  ASSERT_TRUE(found->end.has_value());
  EXPECT_EQ(found->end->exit_code, 3);  // the first end stays
  EXPECT_TRUE(store_->List(/*live_only=*/true)->empty());
}

TEST_F(RunStoreTest, NumbersRunsAndTakesABareNameForTheNewest) {
  RunRow first = Row("sft"), second = Row("sft"), other = Row("sft-eval"), third = Row("sft");
  int64_t created_ms = 1000;
  for (RunRow* const row : {&first, &second, &other, &third}) {
    row->created_ms = ++created_ms;
    ASSERT_TRUE(store_->Insert(*row).ok());
  }
  EXPECT_EQ(first.name, "sft-1");
  EXPECT_EQ(second.name, "sft-2");
  EXPECT_EQ(other.name, "sft-eval-1");
  EXPECT_EQ(third.name, "sft-3");
  EXPECT_EQ(store_->Get("sft")->run_id, third.run_id);
  // A name that was told stays the same run's.
  EXPECT_EQ(store_->Get("sft-1")->run_id, first.run_id);
  EXPECT_EQ(store_->Get("sft-e")->run_id, other.run_id);
  EXPECT_EQ(store_->Get("sf").status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(store_->Delete(other.run_id).ok());
  EXPECT_EQ(store_->Get("sf")->run_id, third.run_id);
  // The numbers of removed runs are not given to others while a later one is there.
  ASSERT_TRUE(store_->Delete(second.run_id).ok());
  RunRow fourth = Row("sft");
  ASSERT_TRUE(store_->Insert(fourth).ok());
  EXPECT_EQ(fourth.name, "sft-4");
}

TEST_F(RunStoreTest, ANewNameWithANumberStaysAsItIs) {
  RunRow first = Row("lr3e-4"), other = Row("lr3e-5"), again = Row("lr3e-4");
  int64_t created_ms = 1000;
  for (RunRow* const row : {&first, &other, &again}) {
    row->created_ms = ++created_ms;
    ASSERT_TRUE(store_->Insert(*row).ok());
  }
  EXPECT_EQ(first.name, "lr3e-4");
  EXPECT_EQ(other.name, "lr3e-5");
  EXPECT_EQ(again.name, "lr3e-4-2");
  // A name that was told stays the same run's: one that removes it must not remove another.
  EXPECT_EQ(store_->Get("lr3e-4")->run_id, first.run_id);
  EXPECT_EQ(store_->Get("lr3e-4-2")->run_id, again.run_id);
  ASSERT_TRUE(store_->Delete(first.run_id).ok());
  EXPECT_EQ(store_->Get("lr3e-4")->run_id, again.run_id);
  EXPECT_EQ(store_->Get("lr3e-5")->run_id, other.run_id);
}

TEST_F(RunStoreTest, TheLastRunNeedsNoName) {
  EXPECT_EQ(store_->Get("@last").status().code(), absl::StatusCode::kNotFound);
  RunRow first = Row("sft"), second = Row("eval");
  first.created_ms = 1000;
  second.created_ms = 2000;
  ASSERT_TRUE(store_->Insert(second).ok());
  ASSERT_TRUE(store_->Insert(first).ok());
  EXPECT_EQ(store_->Get("@last")->run_id, second.run_id);
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
  EXPECT_EQ(HintOf(unknown), "gpuctl ps -a lists them");
  EXPECT_FALSE(store_->Get("").ok());
  store_->SetUnknownHint([](absl::string_view name) { return name == "grid-9" ? "look" : ""; });
  EXPECT_EQ(HintOf(store_->Get("grid-9").status()), "look");
  EXPECT_EQ(HintOf(store_->Get("other-9").status()), "gpuctl ps -a lists them");
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
                         "DROP INDEX specs_resumed;"
                         "ALTER TABLE specs DROP COLUMN launch;"
                         "ALTER TABLE specs DROP COLUMN resumed_from;"
                         "ALTER TABLE runs DROP COLUMN end_cause;"
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
  EXPECT_EQ(row->name, "old-1");
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

TEST_F(RunStoreTest, KeepsTheSourceTheTagsAndTheNote) {
  RunRow row = Row("sft"), other = Row("sft");
  row.source_json = "{\"commit\":\"abc\"}";
  row.source_diff = std::string("+a\0b\n", 5);
  row.tags = {"lr", "sweep"};
  row.note = "the first\ntry";
  ASSERT_TRUE(store_->Insert(row).ok());
  ASSERT_TRUE(store_->Insert(other).ok());
  store_ = *RunStore::Open(path_);
  const auto found = store_->Get(row.run_id);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->source_json, row.source_json);
  EXPECT_EQ(found->tags, row.tags);
  EXPECT_EQ(found->note, row.note);
  EXPECT_EQ(*store_->SourceDiff(row.run_id), row.source_diff);
  EXPECT_EQ(*store_->SourceDiff(other.run_id), "");
  EXPECT_TRUE(store_->Get(other.run_id)->tags.empty());
  ASSERT_TRUE(store_->SetNote(row.run_id, "").ok());
  ASSERT_TRUE(store_->SetPackages(row.run_id, "python==3.11.2\ntorch==2.6.0").ok());
  EXPECT_EQ(store_->Get(row.run_id)->packages, "python==3.11.2\ntorch==2.6.0");
  EXPECT_EQ(store_->Get(row.run_id)->note, "");
  EXPECT_EQ(store_->SetNote(row.run_id, std::string(4097, 'x')).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(RunStoreTest, ListsTheNewestOfThoseWhoseNamesBeginSo) {
  RunRow rows[] = {Row("old-1"), Row("old-2"), Row("oldest-1"), Row("new-1")};
  int64_t created_ms = 1000;
  for (RunRow& row : rows) {
    row.created_ms = created_ms++;
    ASSERT_TRUE(store_->Insert(row).ok());
  }
  const auto names = [this](const char* prefix, int limit, bool live_only) {
    RunFilter filter;
    filter.prefix = prefix;
    filter.limit = limit;
    filter.live_only = live_only;
    std::vector<std::string> found;
    const std::vector<RunRow> listed = store_->List(filter).value();
    for (const RunRow& row : listed) found.push_back(row.name);
    return found;
  };
  using Names = std::vector<std::string>;
  // However many newer ones there are with other names.
  EXPECT_EQ(names("old", 2, false), (Names{"oldest-1", "old-2"}));
  EXPECT_EQ(names("old-", 0, false), (Names{"old-2", "old-1"}));
  EXPECT_EQ(names("old-", 1, true), Names{"old-2"});
  ASSERT_TRUE(store_->SetEnd(rows[1].run_id, RunEnd()).ok());
  EXPECT_EQ(names("old-", 1, true), Names{"old-1"});
  EXPECT_EQ(names("ol%", 0, false), Names{});
}

TEST_F(RunStoreTest, FindsWithoutReadingAllRuns) {
  RunRow first = Row("first"), second = Row("second"), third = Row("third");
  second.target.name = "other";
  third.resumed_from = first.run_id;
  int64_t created_ms = 1000;
  for (RunRow* const row : {&first, &second, &third}) {
    row->created_ms = ++created_ms;
    ASSERT_TRUE(store_->Insert(*row).ok());
  }
  RunEnd end{gpuctl::v1::JOB_STATE_FINISHED, 0, 0, EndSource::kJob, EndCause::kNone, "", 4000};
  ASSERT_TRUE(store_->SetEnd(first.run_id, end).ok());
  end.ended_ms = 5000;
  ASSERT_TRUE(store_->SetEnd(second.run_id, end).ok());
  EXPECT_EQ(store_->Count().value(), 3);
  const auto found = store_->Find({first.run_id, third.run_id, "r-none"});
  ASSERT_TRUE(found.ok() && found->size() == 2u);
  EXPECT_EQ(found->at(third.run_id).name, third.name);
  const auto names = [this](const RunFilter& filter) {
    std::vector<std::string> listed;
    const std::vector<RunRow> rows = store_->List(filter).value();
    for (const RunRow& row : rows) listed.push_back(row.name);
    return listed;
  };
  RunFilter there;
  there.target_name = "other";
  EXPECT_THAT(names(there), ElementsAre(second.name));
  RunFilter lately;
  lately.ended_since_ms = 4500;
  EXPECT_THAT(names(lately), ElementsAre(third.name, second.name));
  lately.target_name = "ada@host:2222";
  lately.prefix = "th";
  EXPECT_THAT(names(lately), ElementsAre(third.name));
  // A launch that never came to a machine is no successor.
  EXPECT_TRUE(store_->SuccessorsOf(first.run_id).value().empty());
  ASSERT_TRUE(store_->SetAccepted(third.run_id, "node-1", 2000).ok());
  EXPECT_THAT(store_->SuccessorsOf(first.run_id).value(), ElementsAre(third.name));
}

TEST_F(RunStoreTest, TagsAreAddedRemovedAndLookedFor) {
  RunRow first = Row("a"), second = Row("b"), third = Row("c");
  first.created_ms = 1000;
  second.created_ms = 2000;
  third.created_ms = 3000;
  first.tags = {"sweep"};
  for (RunRow* const row : {&first, &second, &third}) ASSERT_TRUE(store_->Insert(*row).ok());
  EXPECT_EQ(*store_->ChangeTags(second.run_id, {"sweep-2", "lr=3e-4", "sweep-2"}, {"none"}),
            (std::vector<std::string>{"lr=3e-4", "sweep-2"}));
  EXPECT_EQ(*store_->ChangeTags(third.run_id, {"sweep"}, {}), std::vector<std::string>{"sweep"});
  const auto ids = [this](const RunFilter& filter) {
    std::vector<std::string> names;
    const std::vector<RunRow> rows = store_->List(filter).value();
    for (const RunRow& row : rows) names.push_back(row.run_id);
    return names;
  };
  RunFilter filter;
  filter.tag = "sweep";  // and not sweep-2
  EXPECT_EQ(ids(filter), (std::vector<std::string>{third.run_id, first.run_id}));
  filter.limit = 1;
  EXPECT_EQ(ids(filter), std::vector<std::string>{third.run_id});
  filter.limit = 0;
  filter.since_ms = 1001;
  EXPECT_EQ(ids(filter), std::vector<std::string>{third.run_id});
  filter.tag.clear();
  EXPECT_EQ(ids(filter), (std::vector<std::string>{third.run_id, second.run_id}));
  filter.live_only = true;
  RunEnd end;
  ASSERT_TRUE(store_->SetEnd(third.run_id, end).ok());
  EXPECT_EQ(ids(filter), std::vector<std::string>{second.run_id});
  for (const char* tag : {"", "two words", "-x", "ümlaut", "a\nb", "a'b", "%"}) {
    EXPECT_EQ(store_->ChangeTags(first.run_id, {tag}, {}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << tag;
  }
  // A tag that somebody looks for is only ever text.
  filter = RunFilter();
  filter.tag = "' OR 1=1 --";
  EXPECT_TRUE(ids(filter).empty());
  std::vector<std::string> many;
  for (int i = 0; i < 33; ++i) many.push_back(absl::StrCat("t", i));
  EXPECT_FALSE(store_->ChangeTags(first.run_id, many, {}).ok());
  EXPECT_EQ(*store_->ChangeTags(first.run_id, {}, {}), std::vector<std::string>{"sweep"});
  EXPECT_EQ(*store_->ChangeTags(first.run_id, {}, {"sweep"}), std::vector<std::string>());
  EXPECT_EQ(store_->ChangeTags("r-none", {"x"}, {}).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RunStoreTest, TagsOfSeveralWritersAreAllKept) {
  RunRow row = Row("run");
  ASSERT_TRUE(store_->Insert(row).ok());
  std::vector<std::thread> writers;
  for (int i = 0; i < 8; ++i) {
    writers.emplace_back([this, i, &row] {
      const auto store = RunStore::Open(path_);
      EXPECT_TRUE(store.ok() && (*store)->ChangeTags(row.run_id, {absl::StrCat("t", i)}, {}).ok());
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(store_->Get(row.run_id)->tags.size(), 8u);
}

TEST_F(RunStoreTest, AGpuctlThatDidNotKnowPackagesMadeTheDatabase) {
  RunRow old = Row("old");
  old.tags = {"kept"};
  ASSERT_TRUE(store_->Insert(old).ok());
  store_.reset();
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
  ASSERT_EQ(
      sqlite3_exec(database, "DROP INDEX specs_resumed; ALTER TABLE specs DROP COLUMN packages",
                   nullptr, nullptr, nullptr),
      SQLITE_OK);
  sqlite3_close(database);
  store_ = *RunStore::Open(path_);
  EXPECT_EQ(store_->Get("old")->tags, old.tags);
  EXPECT_EQ(store_->Get("old")->packages, "");
  EXPECT_TRUE(store_->SetPackages(old.run_id, "a==1").ok());
}

TEST_F(RunStoreTest, AnOlderGpuctlAndThisOneUseOneDatabase) {
  RunRow old = Row("old");
  ASSERT_TRUE(store_->Insert(old).ok());
  store_.reset();
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(database,
                         "DROP INDEX specs_resumed;"
                         "ALTER TABLE runs DROP COLUMN tags; ALTER TABLE specs DROP COLUMN note;"
                         "ALTER TABLE specs DROP COLUMN source; ALTER TABLE specs DROP COLUMN diff;"
                         "ALTER TABLE specs DROP COLUMN packages",
                         nullptr, nullptr, nullptr),
            SQLITE_OK);
  std::vector<std::thread> openers;
  for (int i = 0; i < 4; ++i) {
    openers.emplace_back([this] { EXPECT_TRUE(RunStore::Open(path_).ok()); });
  }
  for (std::thread& opener : openers) opener.join();
  store_ = *RunStore::Open(path_);
  EXPECT_EQ(store_->Get("old")->note, "");
  EXPECT_EQ(*store_->ChangeTags(old.run_id, {"x"}, {}), std::vector<std::string>{"x"});
  // The older one names its columns.
  ASSERT_EQ(sqlite3_exec(database,
                         "INSERT INTO specs (run_id, spec, patterns, launch, resumed_from) VALUES "
                         "('r-2', '{}', '{}', '', '');"
                         "INSERT INTO runs (run_id, name, target, job_id, node_id, command, "
                         "workdir, output_segment_bytes, created_ms, accepted_ms, heard_ms, "
                         "target_name) VALUES ('r-2', 'two-1', '{}', 'j-2', '', 'x', '', 1, 2, 0, "
                         "0, 'local')",
                         nullptr, nullptr, nullptr),
            SQLITE_OK)
      << sqlite3_errmsg(database);
  sqlite3_close(database);
  EXPECT_TRUE(store_->Get("r-2")->tags.empty());
  EXPECT_EQ(store_->List().value().size(), 2u);
}

TEST_F(RunStoreTest, ARunThatWasRemovedGetsNoNode) {
  RunRow row = Row("run");
  ASSERT_TRUE(store_->Insert(row).ok());
  EXPECT_TRUE(store_->SetNode(row.run_id, "n-1").ok());
  EXPECT_EQ(store_->Get(row.run_id)->node_id, "n-1");
  ASSERT_TRUE(store_->Delete(row.run_id).ok());
  EXPECT_EQ(store_->SetNode(row.run_id, "n-1").code(), absl::StatusCode::kFailedPrecondition);
}

// Another gpuctl takes a slow launch for dead, before or after the node accepts its job.
TEST_F(RunStoreTest, ARunThatANodeHasAcceptedDidStart) {
  RunEnd never;
  never.source = EndSource::kGpuctl;
  never.exit_code = 1;
  never.ended_ms = 1;
  RunEnd own;
  own.state = gpuctl::v1::JOB_STATE_FINISHED;
  own.source = EndSource::kJob;
  own.ended_ms = 2;
  for (const bool before : {true, false}) {
    RunRow row = Row(before ? "before" : "after");
    ASSERT_TRUE(store_->Insert(row).ok());
    if (before) {
      ASSERT_TRUE(store_->SetEnd(row.run_id, never).ok());
      ASSERT_TRUE(store_->Get(row.run_id)->end.has_value());
    }
    ASSERT_TRUE(store_->SetAccepted(row.run_id, "n-1", 3).ok());
    if (!before) {
      ASSERT_TRUE(store_->SetEnd(row.run_id, never).ok());
    }
    EXPECT_FALSE(store_->Get(row.run_id)->end.has_value()) << row.name;
    ASSERT_TRUE(store_->SetEnd(row.run_id, own).ok());
    ASSERT_TRUE(store_->SetAccepted(row.run_id, "n-1", 4).ok());
    EXPECT_EQ(store_->Get(row.run_id)->end->state, own.state) << row.name;
  }
}

TEST_F(RunStoreTest, KeepsTheCauseOfAnEndWhateverItsReasonSays) {
  const auto kept = [this](const RunEnd& end) {
    RunRow row = Row("run");
    EXPECT_TRUE(store_->Insert(row).ok());
    EXPECT_TRUE(store_->SetEnd(row.run_id, end).ok());
    const RunEnd found = *store_->Get(row.run_id)->end;
    EXPECT_EQ(found.state, end.state);
    EXPECT_EQ(found.source, end.source);
    EXPECT_EQ(found.reason, end.reason);
    return found.cause;
  };
  RunEnd end;
  end.source = EndSource::kGpuctl;
  for (const gpuctl::v1::JobState state :
       {gpuctl::v1::JOB_STATE_LOST, gpuctl::v1::JOB_STATE_FINISHED,
        gpuctl::v1::JOB_STATE_UNSPECIFIED}) {
    for (const char* reason : {"preempted: outbid", "limit:time", "user", ""}) {
      for (const EndCause cause : {EndCause::kNone, EndCause::kUser, EndCause::kLimit,
                                   EndCause::kCannotRun, EndCause::kPreempted}) {
        end.state = state;
        end.reason = reason;
        end.cause = cause;
        EXPECT_EQ(kept(end), cause) << reason;
      }
    }
  }
}

// The tables and rows of a gpuctl without causes, as it wrote them.
constexpr char kOldDatabase[] = R"sql(
CREATE TABLE runs (
  run_id TEXT PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  target TEXT NOT NULL,
  target_name TEXT NOT NULL,
  job_id TEXT NOT NULL UNIQUE,
  node_id TEXT NOT NULL,
  command TEXT NOT NULL,
  workdir TEXT NOT NULL,
  output_segment_bytes INTEGER NOT NULL,
  created_ms INTEGER NOT NULL,
  accepted_ms INTEGER NOT NULL,
  heard_ms INTEGER NOT NULL,
  end_state TEXT, exit_code INTEGER, job_code INTEGER, end_source TEXT, end_reason TEXT,
  ended_ms INTEGER,
  step INTEGER NOT NULL DEFAULT -1, total_steps INTEGER NOT NULL DEFAULT -1, loss REAL
) WITHOUT ROWID;
CREATE TABLE specs (run_id TEXT PRIMARY KEY, spec TEXT NOT NULL, patterns TEXT NOT NULL,
  launch TEXT NOT NULL DEFAULT '', resumed_from TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
CREATE INDEX runs_created ON runs (created_ms);
CREATE INDEX runs_target ON runs (target_name, created_ms);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
PRAGMA user_version = 2;
)sql";

struct OldEnd {
  const char* name;
  const char* columns;  // end_state, exit_code, job_code, end_source, end_reason, ended_ms
  gpuctl::v1::JobState state;
  EndSource source;
  EndCause cause;
};
constexpr OldEnd kOldEnds[] = {
    {"done", "'JOB_STATE_FINISHED', 0, 0, 'job', '', 5", gpuctl::v1::JOB_STATE_FINISHED,
     EndSource::kJob, EndCause::kNone},
    {"stopped", "'JOB_STATE_FINISHED', 143, 143, 'job', 'user', 5", gpuctl::v1::JOB_STATE_FINISHED,
     EndSource::kJob, EndCause::kUser},
    {"limit", "'JOB_STATE_FINISHED', 119, 143, 'gpuctl', 'limit:time', 5",
     gpuctl::v1::JOB_STATE_FINISHED, EndSource::kGpuctl, EndCause::kLimit},
    {"missing", "'JOB_STATE_FINISHED', 127, -1, 'gpuctl', 'exec x: no such file', 5",
     gpuctl::v1::JOB_STATE_FINISHED, EndSource::kGpuctl, EndCause::kCannotRun},
    {"lost", "'JOB_STATE_LOST', 125, -1, 'gpuctl', 'the shim died', 5", gpuctl::v1::JOB_STATE_LOST,
     EndSource::kGpuctl, EndCause::kNone},
    {"outbid", "'JOB_STATE_LOST', 125, -1, 'gpuctl', 'preempted: outbid', 5",
     gpuctl::v1::JOB_STATE_LOST, EndSource::kGpuctl, EndCause::kPreempted},
    {"never", "'', 1, -1, 'gpuctl', 'preempted: no, this never started', 5",
     gpuctl::v1::JOB_STATE_UNSPECIFIED, EndSource::kGpuctl, EndCause::kNone},
};

TEST_F(RunStoreTest, ReadsADatabaseOfTheGpuctlBeforeThereWereCauses) {
  const std::string path = JoinPath(dir_, "old.db");
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  const auto execute = [&database](const std::string& sql) {
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sql;
  };
  const auto insert = [&execute](const OldEnd& old) {
    execute(absl::StrCat("INSERT INTO specs (run_id, spec, patterns) VALUES ('r-", old.name,
                         "', '{}', '{}');"
                         "INSERT INTO runs (run_id, name, target, target_name, job_id, node_id, "
                         "command, workdir, output_segment_bytes, created_ms, accepted_ms, "
                         "heard_ms, end_state, exit_code, job_code, end_source, end_reason, "
                         "ended_ms) VALUES ('r-",
                         old.name, "', '", old.name, "', '{}', 'local', 'j-", old.name,
                         "', 'n', 'true', '/w', 1024, 1, 2, 3, ", old.columns, ")"));
  };
  execute(kOldDatabase);
  for (const OldEnd& old : kOldEnds) insert(old);
  std::vector<std::thread> openers;
  for (int i = 0; i < 4; ++i) {
    openers.emplace_back([&path] {
      const auto store = RunStore::Open(path);
      EXPECT_TRUE(store.ok()) << store.status();
    });
  }
  for (std::thread& opener : openers) opener.join();
  // The older gpuctl may still run, and record another end.
  OldEnd late = kOldEnds[5];
  late.name = "late";
  insert(late);
  sqlite3_close(database);

  const auto store = RunStore::Open(path);
  ASSERT_TRUE(store.ok()) << store.status();
  const auto expect = [&store](const OldEnd& old) {
    const auto row = (*store)->Get(old.name);
    ASSERT_TRUE(row.ok() && row->end.has_value()) << row.status();
    EXPECT_EQ(row->end->state, old.state) << old.name;
    EXPECT_EQ(row->end->source, old.source) << old.name;
    EXPECT_EQ(row->end->cause, old.cause) << old.name;
    EXPECT_EQ(row->end->ended_ms, 5);
    EXPECT_EQ(row->step, -1);
  };
  for (const OldEnd& old : kOldEnds) expect(old);
  expect(late);
}

TEST_F(RunStoreTest, NobodyElseReadsIt) {
  const std::string path = JoinPath(dir_, "private.db");
  const auto modes = [&path] {
    mode_t all = 0;
    for (const char* ending : {"", "-wal", "-shm"}) {
      struct stat info {};
      EXPECT_EQ(stat((path + ending).c_str(), &info), 0) << ending;
      all |= info.st_mode & 0777;
    }
    return all;
  };
  {
    const auto store = RunStore::Open(path);
    ASSERT_TRUE(store.ok());
    EXPECT_EQ(modes(), 0600u);
    for (const char* ending : {"", "-wal", "-shm"}) chmod((path + ending).c_str(), 0644);
    const auto again = RunStore::Open(path);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(modes(), 0600u);
  }
}

TEST_F(RunStoreTest, ReportsAFileThatIsNoDatabase) {
  const std::string path = JoinPath(dir_, "text.db");
  ASSERT_TRUE(WriteFileAtomic(path, std::string(4096, 'x')).ok());
  EXPECT_EQ(RunStore::Open(path).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace gpuctl
