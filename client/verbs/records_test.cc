// gpuctl show, diff, tag and ps of runs that are recorded here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/runs/source_record.h"
#include "client/spec/launch_record.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/changed_files.h"
#include "client/verbs/down_text.h"
#include "client/verbs/packages.h"
#include "client/verbs/run_record.h"
#include "client/verbs/verbs.h"
#include "common/base/clock.h"
#include "common/files/files.h"
#include "tests/support/client_world.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class RecordsTest : public ::testing::Test {
 protected:
  RecordsTest() : world_(Clock::Real()) {}

  RunStore& store() { return *world_.context.Store().value(); }

  // A run that was launched `age` ago and has ended.
  RunRow Add(const std::string& name, absl::Duration age, LaunchRecord launch,
             const std::string& diff = "") {
    RunRow row;
    row.run_id = absl::StrCat("r-", ++added_);
    row.name = name;
    row.job_id = absl::StrCat("j-", added_);
    row.target.provider = "ssh";
    row.target.name = "me@box:22";
    row.command = "python train.py";
    row.created_ms = world_.context.NowMs() - absl::ToInt64Milliseconds(age);
    row.launch_json = FormatLaunchRecord(launch);
    SourceRecord source;
    source.commit = "0123456789abcdef";
    source.branch = "main";
    source.changed = diff.empty() ? 0 : 1;
    source.diff_bytes = static_cast<int64_t>(diff.size());
    row.source_json = FormatSourceRecord(source);
    row.source_diff = diff;
    EXPECT_OK(store().Insert(row));
    EXPECT_OK(store().SetAccepted(row.run_id, "n-1", row.created_ms));
    RunEnd end;
    end.state = gpuctl::v1::JOB_STATE_FINISHED;
    end.job_code = 0;
    end.ended_ms = row.created_ms + 1000;
    EXPECT_OK(store().SetEnd(row.run_id, end));
    return row;
  }
  static LaunchRecord Launch() {
    LaunchRecord launch;
    launch.spec.command = {"python", "train.py", "two words"};
    launch.spec.env = {{"LR", "1e-3"}, {"WANDB_API_KEY", "S3cret"}};
    launch.spec.secrets = {"HF_TOKEN"};
    return launch;
  }

  template <typename Verb>
  absl::StatusOr<int> Run(Verb verb, std::vector<std::string> args) {
    world_.context.format = OutputFormat::kTable;
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    absl::StatusOr<int> code = verb(world_.context, std::move(args));
    told_ = ::testing::internal::GetCapturedStderr();
    shown_ = ::testing::internal::GetCapturedStdout();
    return code;
  }
  template <typename Verb>
  nlohmann::json Json(Verb verb, std::vector<std::string> args) {
    args.push_back("--json");
    EXPECT_OK(Run(verb, std::move(args)));
    return nlohmann::json::parse(shown_);
  }

  ClientWorld world_;
  int added_ = 0;
  std::string shown_, told_;
};

TEST_F(RecordsTest, ShowTellsWhatIsRecordedAndNoSecret) {
  LaunchRecord launch = Launch();
  launch.like = "r-0";
  const RunRow row = Add("fox", absl::Hours(1), launch, "+new\n");
  const std::string mirror = world_.context.Paths()->MirrorDir(row.run_id);
  ASSERT_OK(MakeDirectories(JoinPath(mirror, "telemetry")));
  ASSERT_OK(
      WriteFileAtomic(JoinPath(mirror, "telemetry/00000000000000000000"),
                      "{\"time_ms\":1,\"gpus\":[{\"index\":0,\"name\":\"NVIDIA H100\\u001b[31m\","
                      "\"driver_version\":\"570.86\",\"memory_total_bytes\":85899345920}]}\n"));
  ASSERT_OK(Run(CmdShow, {"fox"}));
  EXPECT_THAT(shown_, AllOf(HasSubstr("python train.py 'two words'"),
                            HasSubstr("0123456789ab on main, 1 file changed"),
                            HasSubstr("NVIDIA H100\\x1b[31m, driver 570.86"), HasSubstr("LR=1e-3"),
                            HasSubstr("WANDB_API_KEY='(hidden)'"), HasSubstr("HF_TOKEN"),
                            HasSubstr(mirror), HasSubstr("~/.gpuctl/jobs/j-1"),
                            HasSubstr("0, the job's own"), HasSubstr("time 1d 0h")));
  EXPECT_THAT(shown_, AllOf(Not(HasSubstr("S3cret")), Not(HasSubstr("\x1b"))));

  const nlohmann::json json = Json(CmdShow, {"fox"});
  EXPECT_THAT(shown_, Not(HasSubstr("S3cret")));
  EXPECT_EQ(json["git"]["clean"], false);
  EXPECT_EQ(json["spec"]["env"]["LR"], "1e-3");
  EXPECT_EQ(json["spec"]["env"]["WANDB_API_KEY"], "(hidden)");
  EXPECT_EQ(json["like"], "r-0");
  EXPECT_EQ(json["gpus"][0]["driver_version"], "570.86");
  EXPECT_EQ(json["files"]["mirror"], mirror);
  EXPECT_EQ(json["exit_code"], 0);

  ASSERT_OK(Run(CmdShow, {"fox", "--diff"}));
  EXPECT_EQ(shown_, "+new\n");
}

TEST_F(RecordsTest, ShowOfARunThatAnOlderGpuctlLaunched) {
  RunRow row = Add("old", absl::Hours(1), Launch());
  RunRow bare;
  bare.run_id = "r-9";
  bare.name = "bare";
  bare.job_id = "j-9";
  bare.command = "x";
  bare.created_ms = 1;
  ASSERT_OK(store().Insert(bare));
  ASSERT_OK(Run(CmdShow, {"bare"}));
  EXPECT_THAT(shown_, AllOf(HasSubstr("not recorded"), HasSubstr("launching")));
  EXPECT_THAT(told_, HasSubstr("older gpuctl"));
  EXPECT_TRUE(Json(CmdShow, {"bare"})["spec"].is_null());
  ASSERT_OK(Run(CmdShow, {"bare", "--diff"}));
  EXPECT_EQ(shown_, "");
  EXPECT_THAT(told_, HasSubstr("has no diff: not recorded"));
  ASSERT_OK(Run(CmdDiff, {"bare", "old"}));
  EXPECT_THAT(Run(CmdShow, {"nobody"}).status(), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(RecordsTest, AScriptOfSeveralLinesIsShownAsSuch) {
  LaunchRecord launch;
  launch.spec.run = "set -e\npython train.py \x1b[31m\n";
  Add("script", absl::Hours(1), launch);
  ASSERT_OK(Run(CmdShow, {"script"}));
  EXPECT_THAT(shown_, HasSubstr("script\n  set -e\n  python train.py \\x1b[31m\n"));
  launch.spec.run.clear();
  launch.spec.trainer_json = "{\"optimizer\":{\"lr\":0.001}}";
  Add("trained", absl::Hours(1), launch);
  ASSERT_OK(Run(CmdShow, {"trained"}));
  EXPECT_THAT(shown_, HasSubstr("trainer      {\"optimizer\":{\"lr\":0.001}}"));
}

TEST_F(RecordsTest, DiffNamesWhatDiffersAndHidesSecrets) {
  LaunchRecord first = Launch(), second = Launch();
  first.spec.trainer_json = "{\"lora\":{\"r\":16},\"steps\":10}";
  second.spec.trainer_json = "{\"lora\":{\"r\":32},\"steps\":10}";
  second.spec.env["LR"] = "3e-4";
  second.spec.env["WANDB_API_KEY"] = "Other";
  second.spec.env["NEW"] = "1";
  Add("one", absl::Hours(2), first, "+a\n");
  Add("two", absl::Hours(2), second, "+b\n");
  const nlohmann::json json = Json(CmdDiff, {"one", "two"});
  std::map<std::string, std::pair<nlohmann::json, nlohmann::json>> fields;
  for (const auto& one : json["differences"]) {
    fields[one["field"]] = {one["before"], one["after"]};
  }
  EXPECT_EQ(fields["env.LR"], std::pair(nlohmann::json("1e-3"), nlohmann::json("3e-4")));
  EXPECT_EQ(fields["env.WANDB_API_KEY"].second, "(hidden)");
  EXPECT_EQ(fields["env.NEW"], std::pair(nlohmann::json(), nlohmann::json("1")));
  EXPECT_EQ(fields["trainer.lora.r"], std::pair(nlohmann::json("16"), nlohmann::json("32")));
  EXPECT_EQ(fields.count("diff"), 1u);
  for (const char* same : {"trainer.steps", "command", "commit", "machine", "status"}) {
    EXPECT_EQ(fields.count(same), 0u) << same;
  }
  EXPECT_THAT(shown_, AllOf(Not(HasSubstr("S3cret")), Not(HasSubstr("Other"))));
  ASSERT_OK(Run(CmdDiff, {"one", "one"}));
  EXPECT_THAT(told_, HasSubstr("do not differ"));
  EXPECT_EQ(shown_, "");
  ASSERT_OK(Run(CmdDiff, {"one", "two", "--patch"}));
  EXPECT_THAT(shown_, HasSubstr("@@ -1 +1 @@\n-+a\n++b\n"));
  ASSERT_OK(Run(CmdDiff, {"one", "one", "--patch"}));
  EXPECT_THAT(told_, HasSubstr("do not differ"));
}

std::string Part(const std::string& path, const std::string& line) {
  return absl::StrCat("diff --git a/", path, " b/", path, "\n--- a/", path, "\n+++ b/", path,
                      "\n@@ -1 +1 @@\n+", line, "\n");
}

TEST(ChangedFiles, AreThoseWhoseKeptChangesDiffer) {
  SourceRecord source;
  source.commit = "0123";
  // A line of a file may look like a header of the diff; there it has a sign in front.
  const std::string first =
      Part("a b.py", "1\n+diff --git a/x b/x") + Part("same", "1") + Part("gone", "1");
  const std::string second =
      Part("a b.py", "2") + "diff --git \"a/\\374.py\" \"b/\\374.py\"\nnew\n" + Part("same", "1");
  const ChangedFiles changed = FilesThatDiffer({source, first}, {source, second});
  EXPECT_THAT(changed.files, ElementsAre("\"\\374.py\"", "a b.py", "gone"));
  EXPECT_EQ(changed.why_not_all, "");
  EXPECT_THAT(FilesThatDiffer({source, first}, {source, first}).why_not_all,
              HasSubstr("git may ignore"));
}

TEST(ChangedFiles, SayWhyTheyMayNotBeAll) {
  SourceRecord plain, other;
  plain.commit = "0123456789abcdef";
  const auto why = [&] {
    return FilesThatDiffer({plain, Part("x", "1")}, {other, ""}).why_not_all;
  };
  other = plain;
  EXPECT_EQ(why(), "");
  other.diff_cut = true;
  EXPECT_EQ(why(), "a kept diff is cut");
  other.diff_cut = false;
  other.left_out = {".env"};
  other.left_out_count = 1;
  EXPECT_EQ(why(), "no diff has .env");
  other.diff_missing = "git diff failed";
  EXPECT_EQ(why(), "git diff failed");
  other = plain;
  other.commit = "fedcba9876543210";
  EXPECT_THAT(why(), HasSubstr("git diff --stat 0123456789ab fedcba987654 shows it"));
  other.unknown = "not in a git repository";
  EXPECT_EQ(why(), "not in a git repository");
  EXPECT_THAT(FilesThatDiffer({plain, Part("x", "1")}, {other, ""}).files, IsEmpty());
}

TEST_F(RecordsTest, DiffHasTheLastValueOfEachNumberOfTheJob) {
  Add("one", absl::Hours(2), Launch());
  const RunRow two = Add("two", absl::Hours(2), Launch());
  const std::string mirror = world_.context.Paths()->MirrorDir(two.run_id);
  ASSERT_OK(MakeDirectories(mirror));
  ASSERT_OK(WriteFileAtomic(JoinPath(mirror, "metrics.jsonl"),
                            "{\"step\":1,\"accuracy\":0.25}\n{\"step\":2,\"accuracy\":0.75}\n"));
  ASSERT_OK(Run(CmdDiff, {"one", "two"}));
  EXPECT_THAT(shown_, HasSubstr("metric.accuracy  -      0.75"));
}

// Stores a batch of `count` runs.
void Submit(CommandContext& context, const std::string& name, int count) {
  const auto batches = OpenBatches(context);
  ASSERT_OK(batches);
  Batch batch;
  batch.batch_id = absl::StrCat("b-", name);
  batch.name = name;
  batch.digest = "d";
  batch.created_ms = 1;
  std::vector<Entry> entries;
  for (int i = 1; i <= count; ++i) {
    Entry& entry = entries.emplace_back();
    entry.entry_id = absl::StrCat("e-", name, "-", i);
    entry.number = i;
    entry.name = absl::StrCat(name, "-", i);
  }
  ASSERT_OK((*batches)->Insert(batch, entries));
}

TEST_F(RecordsTest, AHintNamesTheBatchThatSeemsToBeMeant) {
  Submit(world_.context, "grid", 2);
  for (const char* name : {"grid", "gird", "grid-9", "gird-1"}) {
    EXPECT_EQ(HintForBatch(world_.context, name), "gpuctl queue grid shows the runs of batch grid")
        << name;
  }
  for (const char* name : {"", "other", "other-1", "-1"}) {
    EXPECT_EQ(HintForBatch(world_.context, name), "") << name;
  }
}

TEST_F(RecordsTest, ABatchIsAllItsRunsWhereTheyAreWanted) {
  Submit(world_.context, "grid", 2);
  EXPECT_THAT(WithRunsOfBatches(world_.context, {"fox", "grid"}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("no run of batch grid has started")));
  EXPECT_THAT(WithRunsOfBatches(world_.context, {"fox"}).value(), ElementsAre("fox"));
  EXPECT_THAT(WithRunsOfBatches(world_.context, {}).value(), IsEmpty());
}

TEST_F(RecordsTest, OneCommandBringsTheResultsOfABatchThatHadAMachine) {
  Submit(world_.context, "grid", 2);
  Submit(world_.context, "other", 1);
  Lease lease;
  NotHomeOn found;
  const auto use = [&](const std::string& run) {
    LeaseUse& one = lease.uses.emplace_back();
    one.run_id = one.run_name = run;
    found.ways.push_back(absl::StrCat("gpuctl pull ", run));
  };
  use("grid-1");
  EXPECT_EQ(HowToBringAll(world_.context, lease, found), "gpuctl pull grid-1");
  use("grid-2");
  EXPECT_EQ(HowToBringAll(world_.context, lease, found), "gpuctl pull --batch grid brings them");
  use("other-1");
  EXPECT_EQ(HowToBringAll(world_.context, lease, found),
            "gpuctl pull grid-1, gpuctl pull grid-2, gpuctl pull other-1");
  lease.uses.pop_back();
  use("alone-1");
  EXPECT_THAT(HowToBringAll(world_.context, lease, found), HasSubstr("gpuctl pull alone-1"));
}

TEST(DownText, TheQuestionIsShortAlsoWithManyRuns) {
  Lease lease;
  lease.instance_id = "7";
  lease.provider = "vast";
  lease.gpu_name = "RTX 4090";
  lease.gpu_count = 1;
  NotHomeOn found;
  std::vector<std::string> live;
  for (int i = 1; i <= 40; ++i) {
    live.push_back(absl::StrCat("grid-", i));
    found.wanted.push_back(absl::StrCat("grid-", i, ": 1 checkpoint (1 B): ckpt/step-1"));
  }
  const std::string question = EndQuestion(lease, live);
  EXPECT_THAT(question, HasSubstr(" and stop grid-1, grid-2, grid-3, 37 more?"));
  EXPECT_LT(question.size(), 80u);
  EXPECT_EQ(LossText(found, {}),
            "Not at home, and lost then: grid-1: 1 checkpoint (1 B): ckpt/step-1; grid-2: 1 "
            "checkpoint (1 B): ckpt/step-1; and 38 more of the kind.");
  EXPECT_EQ(LossText({}, {}), "Its results are at home.");
}

TEST_F(RecordsTest, TagsAndNotesFindARunAgain) {
  Add("one", absl::Hours(48), Launch());
  Add("two", absl::Hours(2), Launch());
  Add("three", absl::Hours(1), Launch());
  ASSERT_OK(Run(CmdTag, {"one", "sweep", "lr=3e-4", "--note", "the best\nso far\x1b[1m"}));
  EXPECT_EQ(shown_, "lr=3e-4\nsweep\n");
  EXPECT_THAT(told_, HasSubstr("the best\\nso far\\x1b[1m"));
  ASSERT_OK(Run(CmdTag, {"two", "sweep"}));
  ASSERT_OK(Run(CmdPs, {"--tag", "sweep", "-q"}));
  EXPECT_EQ(shown_, "two-1\none-1\n");
  ASSERT_OK(Run(CmdPs, {"--tag", "sweep", "--since", "1d", "-q"}));
  EXPECT_EQ(shown_, "two-1\n");
  ASSERT_OK(Run(CmdPs, {"--limit", "2", "-q"}));
  EXPECT_EQ(shown_, "three-1\ntwo-1\n");
  ASSERT_OK(Run(CmdPs, {"--tag", "sweep", "--live", "-q"}));
  EXPECT_EQ(shown_, "");
  ASSERT_OK(Run(CmdPs, {"-q"}));
  EXPECT_EQ(shown_, "");
  const nlohmann::json listed = Json(CmdPs, {"--tag", "sweep", "--limit", "1"});
  EXPECT_EQ(listed["runs"][0]["tags"], nlohmann::json({"sweep"}));
  ASSERT_OK(Run(CmdTag, {"one", "--remove", "sweep", "--remove", "none"}));
  EXPECT_EQ(shown_, "lr=3e-4\n");
  const nlohmann::json json = Json(CmdTag, {"one", "--note", ""});
  EXPECT_TRUE(json["note"].is_null());
  EXPECT_EQ(json["tags"], nlohmann::json({"lr=3e-4"}));
  EXPECT_FALSE(world_.known("me@box:22"));  // nobody was asked
}

TEST_F(RecordsTest, BadInputIsAUsageErrorAndChangesNothing) {
  Add("one", absl::Hours(1), Launch());
  const std::vector<std::vector<std::string>> bad_tags = {
      {"one", "two words"}, {"one", "good", ""}, {"one", "good", "--note", std::string(5000, 'x')}};
  for (const std::vector<std::string>& args : bad_tags) {
    EXPECT_EQ(ExitCodeOf(Run(CmdTag, args).status()), kExitUsage);
  }
  EXPECT_TRUE(store().Get("one")->tags.empty());
  const std::vector<std::vector<std::string>> bad_lists = {
      {"--tag", "a b"}, {"--tag", ""},    {"--since", ""},   {"--since", "soon"}, {"--since", "5"},
      {"--limit", "0"}, {"-a", "--live"}, {"--limit", "-3"}, {"--limit", "x"}};
  for (const std::vector<std::string>& args : bad_lists) {
    EXPECT_EQ(ExitCodeOf(Run(CmdPs, args).status()), kExitUsage) << args[0] << args[1];
  }
  // A document is whole, also with -q.
  EXPECT_EQ(Json(CmdPs, {"-a", "-q", "--offline"})["runs"].size(), 1u);
}

TEST_F(RecordsTest, PackagesThatAreRecordedAreShownAndCompared) {
  const RunRow one = Add("one", absl::Hours(1), Launch()),
               two = Add("two", absl::Hours(1), Launch());
  ASSERT_OK(store().SetPackages(one.run_id, "python==3.11.2\ntorch==2.5.1\nold==1"));
  EXPECT_THAT(Json(CmdDiff, {"one", "two"})["differences"].dump(), Not(HasSubstr("package")));
  ASSERT_OK(store().SetPackages(two.run_id, "python==3.11.2\ntorch==2.6.0"));
  const std::string differences = Json(CmdDiff, {"one", "two"})["differences"].dump();
  EXPECT_THAT(differences, AllOf(HasSubstr("package.torch"), HasSubstr("package.old"),
                                 Not(HasSubstr("package.python"))));
  ASSERT_OK(Run(CmdShow, {"two", "--packages"}));
  EXPECT_EQ(shown_, "python==3.11.2\ntorch==2.6.0\n");
  EXPECT_FALSE(world_.known("me@box:22"));
  EXPECT_EQ(ExitCodeOf(Run(CmdShow, {"two", "--packages", "--diff"}).status()), kExitUsage);
}

TEST(ParsePackagesTest, TakesNothingThatIsNoListOfPackages) {
  EXPECT_EQ(ParsePackages("a==1\r\n\nb.c==2+cpu").value(),
            (std::vector<std::string>{"a==1", "b.c==2+cpu"}));
  std::string many;
  for (int i = 0; i < 5001; ++i) absl::StrAppend(&many, "a", i, "==1\n");
  for (const std::string& text :
       {std::string(), std::string("a=1"), std::string("==1"), std::string("a b==1"),
        std::string("\x1b[31ma==1"), std::string("a==1\0", 5), std::string(300, 'a') + "==1", many,
        std::string("Traceback (most recent call last):\na==1")}) {
    EXPECT_FALSE(ParsePackages(text).ok()) << text.substr(0, 40);
  }
}

TEST(NamesSecretTest, KnowsTheUsualNames) {
  for (const char* name : {"HF_TOKEN", "wandb_api_key", "AWS_SECRET_ACCESS_KEY", "KEY",
                           "DB_PASSWORD", "OPENAI_APIKEY", "GOOGLE_AUTH"}) {
    EXPECT_TRUE(NamesSecret(name)) << name;
  }
  for (const char* name : {"LR", "KEYS_PER_HEAD", "MONKEY", "WANDB_MODE", "MAX_TOKENS",
                           "TOKENIZERS_PARALLELISM", ""}) {
    EXPECT_FALSE(NamesSecret(name)) << name;
  }
}

}  // namespace
}  // namespace gpuctl
