// Slurm's words as they were recorded (tests/slurm/recorded), and the provider over a login node
// that answers with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/process/pipe.h"
#include "common/process/process.h"
#include "common/release/release_route.h"
#include "provisioning/slurm/kept_results.h"
#include "provisioning/slurm/slurm_provider.h"
#include "provisioning/slurm/slurm_text.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr char kLabel[] = "gpuctl-00ff12ab-0123456789ab";

// Returns what a command printed: "sinfo_idle.out".
std::string Recorded(const std::string& name) {
  const char* const folder = std::getenv("GPUCTL_SLURM_RECORDED");
  if (folder == nullptr) return "";
  return ReadFileToString(JoinPath(folder, name)).value_or("");
}

TEST(SlurmText, ReadsTimes) {
  EXPECT_EQ(ParseSlurmTime("1-02:03:04"), absl::Hours(26) + absl::Minutes(3) + absl::Seconds(4));
  EXPECT_EQ(ParseSlurmTime("2-0"), absl::Hours(48));
  EXPECT_EQ(ParseSlurmTime("10:00"), absl::Minutes(10));
  EXPECT_EQ(ParseSlurmTime("1:00:00"), absl::Hours(1));
  EXPECT_EQ(ParseSlurmTime("30"), absl::Minutes(30));
  EXPECT_EQ(ParseSlurmTime("infinite"), absl::InfiniteDuration());
  EXPECT_EQ(ParseSlurmTime("UNLIMITED"), absl::InfiniteDuration());
  for (const char* none :
       {"", "INVALID", "NOT_SET", "-1", "1:2:3:4", "a", "1-", "1--2", ":", "9:"}) {
    EXPECT_EQ(ParseSlurmTime(none), std::nullopt) << none;
  }
}

TEST(SlurmText, ReadsGpusAmongOtherResources) {
  const auto shown = [](absl::string_view text) {
    std::vector<std::string> all;
    for (const GpuGres& gpu : ParseGpuGres(text)) {
      all.push_back(absl::StrCat(gpu.type, " ", gpu.count));
    }
    return all;
  };
  EXPECT_THAT(shown("gpu:h100:4(S:0-1)"), ElementsAre("h100 4"));
  EXPECT_THAT(shown("gpu:4"), ElementsAre(" 4"));
  EXPECT_THAT(shown("gpu"), ElementsAre(" 1"));
  EXPECT_THAT(shown("gres:gpu:a100:2,nvme:1,gpu:l4:8(IDX:0,2-3)"), ElementsAre("a100 2", "l4 8"));
  EXPECT_THAT(shown("(null)"), IsEmpty());
  EXPECT_THAT(shown("shard:gpu:4"), IsEmpty());
  EXPECT_THAT(shown("gpu:a100:0"), IsEmpty());
}

TEST(SlurmText, ReadsRecordedFailures) {
  struct Case {
    const char* file;
    bool making;
    absl::StatusCode code;
  };
  using Code = absl::StatusCode;
  for (const Case& each : {Case{"squeue_unknown.err", false, Code::kNotFound},
                           Case{"dead_squeue.err", false, Code::kUnavailable},
                           Case{"dead_sbatch.err", true, Code::kUnavailable},
                           Case{"hung_squeue.err", false, Code::kUnavailable},
                           Case{"hung_sbatch.err", true, Code::kDeadlineExceeded},
                           Case{"hung_scancel.err", false, Code::kUnavailable},
                           Case{"sbatch_wrong_gres.err", true, Code::kInvalidArgument},
                           Case{"sbatch_wrong_partition.err", true, Code::kInvalidArgument},
                           Case{"sbatch_wrong_feature.err", true, Code::kInvalidArgument},
                           Case{"sbatch_too_much_memory.err", true, Code::kInvalidArgument},
                           Case{"sbatch_bad_time.err", true, Code::kInvalidArgument},
                           Case{"scancel_unknown_verbose.err", false, Code::kNotFound}}) {
    const std::string words = Recorded(each.file);
    ASSERT_FALSE(words.empty()) << each.file;
    EXPECT_EQ(StatusOfFailure("ask", 1, words, each.making).code(), each.code) << each.file;
  }
  // `timeout` ended a command that was silent.
  EXPECT_THAT(StatusOfFailure("ask", 124, "", false), StatusIs(Code::kUnavailable));
  EXPECT_THAT(StatusOfFailure("submit", 137, "", true), StatusIs(Code::kDeadlineExceeded));
  // What was never heard of may have made a job.
  EXPECT_THAT(StatusOfFailure("submit", 1, "sbatch: error: oh no", true), StatusIs(Code::kUnknown));
}

TEST(SlurmText, TellsReasonsThatNeverEnd) {
  EXPECT_EQ(MeaningOf("PENDING", "Resources").state, Instance::State::kStarting);
  EXPECT_EQ(MeaningOf("PENDING", "Priority").state, Instance::State::kStarting);
  EXPECT_EQ(MeaningOf("PENDING", "ReqNodeNotAvail, UnavailableNodes:n2").state,
            Instance::State::kStarting);
  for (const char* never : {"PartitionTimeLimit", "BadConstraints", "DependencyNeverSatisfied",
                            "PartitionNodeLimit", "InvalidQOS"}) {
    EXPECT_EQ(MeaningOf("PENDING", never).state, Instance::State::kFailed) << never;
    EXPECT_FALSE(MeaningOf("PENDING", never).held) << never;
  }
  // A person can let it go, so it is not out of order.
  for (const char* held : {"JobHeldUser", "JobHeldAdmin", "job requeued in held state",
                           "launch failed requeued held", "JobHoldMaxRequeue"}) {
    EXPECT_EQ(MeaningOf("PENDING", held).state, Instance::State::kStarting) << held;
    EXPECT_TRUE(MeaningOf("PENDING", held).held) << held;
    EXPECT_THAT(MeaningOf("PENDING", held).message, HasSubstr("it does not start by itself; "));
  }
  EXPECT_TRUE(MeaningOf("REQUEUE_HOLD", "None").held);
  EXPECT_FALSE(MeaningOf("REQUEUED", "None").held);
  EXPECT_EQ(MeaningOf("REQUEUED", "None").state, Instance::State::kStarting);
  EXPECT_THAT(MeaningOf("PENDING", "JobHeldUser").message, HasSubstr("its user can release it"));
  EXPECT_THAT(MeaningOf("PENDING", "JobHeldAdmin").message, HasSubstr("only an administrator"));
  EXPECT_THAT(MeaningOf("PENDING", "job requeued in held state").message,
              HasSubstr("it does not start by itself; its user, or an administrator"));
  EXPECT_THAT(MeaningOf("REQUEUE_HOLD", "None").message, HasSubstr("scontrol release"));
  EXPECT_EQ(MeaningOf("RUNNING", "None").state, Instance::State::kRunning);
  EXPECT_TRUE(MeaningOf("CANCELLED by 20771", "").gone);
  EXPECT_TRUE(MeaningOf("PREEMPTED", "None").gone);
  EXPECT_FALSE(MeaningOf("COMPLETING", "None").gone);
  // A later version's word ends nothing.
  EXPECT_EQ(MeaningOf("HIBERNATED", "None").state, Instance::State::kSilent);
}

TEST(SlurmText, RefusesLinesOfAnotherShape) {
  EXPECT_OK(ParseSinfo("main*|up|1-00:00:00|2|gpu:h100:4|idle|16|16000\n"));
  EXPECT_THAT(ParseSinfo("main|up|1-00:00:00|2\n"), StatusIs(absl::StatusCode::kUnknown));
  EXPECT_THAT(ParseSinfo("main|up|soon|2|gpu:1|idle|16|16000\n"),
              StatusIs(absl::StatusCode::kUnknown));
  EXPECT_THAT(ParseSqueue("slurm_load_jobs error: something\n"),
              StatusIs(absl::StatusCode::kUnknown));
  EXPECT_THAT(ParseSqueue("17|RUNNING|1\n"), StatusIs(absl::StatusCode::kUnknown));
  // The user gives other jobs any name.
  const auto rows = ParseSqueue(
      "17|RUNNING|5|4|9:59|gres:gpu:1|main|n1|None|a|b\nc|;\n18|PENDING|N/A|4|9:59|N/A|main||"
      "Reserved for maintenance, later|d|;\n");
  ASSERT_OK(rows);
  ASSERT_THAT(*rows, SizeIs(2));
  EXPECT_EQ(rows->front().name, "a|b\nc");
  EXPECT_EQ(rows->back().starts_s, 0);
  // An answer that ends in the middle is not whole.
  EXPECT_THAT(ParseSqueue("17|RUNNING|5|4|9:59|gres:gpu:1|main|n1|None|a"),
              StatusIs(absl::StatusCode::kUnknown));
}

TEST(SlurmText, ReadsWhatWasRecorded) {
  int jobs = 0;
  for (const char* file : {"squeue_waiting.out", "squeue_odd.out", "squeue_completing.out"}) {
    const auto rows = ParseSqueue(Recorded(file));
    ASSERT_OK(rows);
    for (const JobRow& row : *rows) {
      EXPECT_GT(row.submitted_s, 1'700'000'000) << file;
      ++jobs;
    }
  }
  EXPECT_GT(jobs, 10);
  for (const char* file : {"sinfo_idle.out", "sinfo_busy.out", "sinfo_down.out"}) {
    const auto rows = ParseSinfo(Recorded(file));
    ASSERT_OK(rows);
    ASSERT_GE(rows->size(), 2u) << file;
    EXPECT_TRUE(rows->front().usual) << file;
  }
}

// Answers each command with the first of its answers whose beginning it has.
class FakeLogin : public LoginNode {
 public:
  const SshAddress& address() const override { return address_; }
  absl::StatusOr<CommandAnswer> Run(const std::string& command, absl::string_view input) override {
    asked.push_back(command);
    inputs.emplace_back(input);
    for (auto& [word, answer] : answers) {
      if (absl::StrContains(command, word)) return answer;
    }
    return absl::UnavailableError("no answer for it");
  }
  std::vector<std::pair<std::string, absl::StatusOr<CommandAnswer>>> answers;
  std::vector<std::string> asked, inputs;

 private:
  const SshAddress address_{"login", 0, "ada", {}, ""};
};

class SlurmTest : public ::testing::Test {
 protected:
  SlurmTest() { Make({}, ""); }
  // Most tests want no directory for results.
  void Make(SlurmOptions options, const std::string& results = "") {
    options.results = results;
    login_ = std::make_shared<FakeLogin>();
    provider_ = MakeSlurmProvider(login_, std::move(options), Clock::Real());
  }
  void Answer(const std::string& word, const std::string& out, int code = 0,
              const std::string& err = "") {
    login_->answers.emplace_back(word, CommandAnswer{code, out, err});
  }
  static Requirements Wish(int count) {
    Requirements wish;
    wish.gpus = {{"H100", count, 0, 0}};
    return wish;
  }
  static std::string Row(const std::string& state, const std::string& reason = "None") {
    return absl::StrCat("17|", state, "|1790000000|1789999990|9:59|gres:gpu:h100:2|main|n1|",
                        reason, "|", kLabel, "|;\n");
  }
  std::shared_ptr<FakeLogin> login_;
  std::unique_ptr<Provider> provider_;
};

TEST_F(SlurmTest, OffersWhatStartsFirst) {
  Answer("sinfo",
         "main*|up|1-00:00:00|2|gpu:h100:4|idle|16|16000\n"
         "low|up|2-00:00:00|2|gpu:h100:4|idle|16|16000\n"
         "old|up|2-00:00:00|2|gpu:h100:4|down*|16|16000\n"
         "shut|down|2-00:00:00|2|gpu:h100:4|idle|16|16000\n");
  const std::string soon = absl::StrCat(absl::ToUnixSeconds(Clock::Real().Now()));
  const std::string later = absl::StrCat(absl::ToUnixSeconds(Clock::Real().Now() + absl::Hours(2)));
  Answer("'--partition=main'", "", 0, absl::StrCat("sbatch: Job 5 to start at ", later, " using"));
  Answer("'--partition=low'", "", 0, absl::StrCat("sbatch: Job 6 to start at ", soon, " using"));
  const auto offers = provider_->ListOffers(Wish(2));
  ASSERT_OK(offers);
  ASSERT_THAT(*offers, SizeIs(2));
  EXPECT_EQ((*offers)[0].region, "low");
  EXPECT_EQ((*offers)[1].region, "main");
  EXPECT_THAT((*offers)[1].description, HasSubstr("expected to start in "));
  EXPECT_EQ((*offers)[0].price_usd_per_hour, 0);
  EXPECT_THAT(login_->asked[1], HasSubstr("--test-only"));
}

TEST_F(SlurmTest, LeavesOutWhatNeverStarts) {
  Answer("sinfo", "main*|up|1-00:00:00|2|gpu:h100:4|idle|16|16000\n");
  Answer("--test-only", "", 1, Recorded("test_only_too_many_gpus.err"));
  EXPECT_THAT(*provider_->ListOffers(Wish(4)), IsEmpty());
  EXPECT_THAT(*provider_->ListOffers(Wish(5)), IsEmpty());
  Requirements longer = Wish(1);
  longer.needed_for = absl::Hours(25);
  const size_t before = login_->asked.size();
  EXPECT_THAT(*provider_->ListOffers(longer), IsEmpty());
  EXPECT_EQ(login_->asked.size(), before + 1);  // no sbatch
}

TEST_F(SlurmTest, AsksAPartitionsModelOfTheSettings) {
  SlurmOptions options;
  options.gpus["gpu"] = "H100";
  Make(options);
  Answer("sinfo", "gpu|up|infinite|2|gpu:4|idle|16|16000\n");
  Answer("--test-only", "", 0, "sbatch: Job 5 to start at 1790000000 using");
  const auto offers = provider_->ListOffers(Wish(1));
  ASSERT_OK(offers);
  ASSERT_THAT(*offers, SizeIs(1));
  EXPECT_EQ(offers->front().gpu_name, "H100");
  EXPECT_THAT(login_->asked.back(), HasSubstr("'--gres=gpu:1'"));
}

TEST_F(SlurmTest, SubmitsOneJobWithALimit) {
  SlurmOptions options;
  options.account = "lab";
  options.without = {"--signal"};
  options.flags = {"--mem=0", "it's"};
  Make(options);
  Answer("sbatch", "17\n");
  Offer offer;
  offer.provider = "slurm";
  offer.ref = "main|h100|2|60|1";
  RentOptions rent;
  rent.start_script = "#!/bin/sh\necho begun\n";
  rent.env["WORD"] = "it's";
  rent.expires_at = Clock::Real().Now() + absl::Hours(9);
  const auto rented = provider_->Rent(offer, rent, kLabel);
  ASSERT_OK(rented);
  EXPECT_EQ(rented->id, "17");
  const std::string& line = login_->asked.back();
  EXPECT_THAT(line, HasSubstr("'--time=60'"));  // no longer than the partition allows
  EXPECT_THAT(line, HasSubstr(absl::StrCat("'--job-name=", kLabel, "'")));
  EXPECT_THAT(line, HasSubstr("'--gres=gpu:h100:2'"));
  EXPECT_THAT(line, HasSubstr("--no-requeue"));
  EXPECT_THAT(line, HasSubstr("'--account=lab'"));
  EXPECT_THAT(line, Not(HasSubstr("--signal")));
  EXPECT_THAT(line, HasSubstr("'--mem=0' 'it'\\''s'"));
  EXPECT_EQ(login_->inputs.back(), "#!/bin/sh\nexport WORD='it'\\''s'\necho begun\n");
}

TEST_F(SlurmTest, SeveralNodesAreOneJobWithADirectoryForEach) {
  Make({}, "~/kept");
  Answer("sinfo",
         "main*|up|1-00:00:00|2|gpu:h100:4|idle|16|16000\n"
         "big|up|1-00:00:00|3|gpu:h100:4|idle|16|16000\n");
  Answer("--test-only", "", 0, "sbatch: Job 5 to start at 1790000000 using");
  Requirements wish = Wish(2);
  wish.nodes = 3;
  const auto offers = provider_->ListOffers(wish);
  ASSERT_OK(offers);
  ASSERT_THAT(*offers, SizeIs(1));
  EXPECT_EQ(offers->front().region, "big");
  EXPECT_THAT(offers->front().description, HasSubstr("3 nodes with 2x H100"));
  EXPECT_THAT(login_->asked.back(), HasSubstr("'--nodes=3'"));
  Answer("mkdir", "/home/ada/results\n");
  Answer("sbatch --parsable", "17\n");
  ASSERT_OK(provider_->Rent(offers->front(), {}, kLabel));
  EXPECT_THAT(login_->asked.back(), HasSubstr("'--nodes=3'"));
  const std::string& made = login_->asked[login_->asked.size() - 2];
  EXPECT_THAT(made, HasSubstr("node-1/token"));
  EXPECT_THAT(made, HasSubstr("node-2/token"));
  EXPECT_THAT(made, Not(HasSubstr("node-3")));
}

TEST_F(SlurmTest, ARunsWishesCountMoreThanTheSettings) {
  SlurmOptions options;
  options.partition = "low";
  options.account = "lab";
  options.qos = "usual";
  options.flags = {"--mem=0"};
  Make(options);
  Requirements wish = Wish(1);
  wish.scheduler.partition = "main";
  wish.scheduler.account = "other";
  wish.scheduler.constraint = "nvlink";
  wish.scheduler.time = absl::Hours(3);
  wish.scheduler.flags = {"--mem=64G"};
  Answer("sinfo -h -o '%P|%a|%l|%D|%G|%t|%c|%m' -p 'main'",
         "main*|up|4:00:00|2|gpu:h100:4|idle|16|16000\n");
  Answer("--test-only", "", 0, "sbatch: Job 5 to start at 1790000000 using");
  const auto offers = provider_->ListOffers(wish);
  ASSERT_OK(offers);
  ASSERT_THAT(*offers, SizeIs(1));
  Answer("sbatch", "17\n");
  RentOptions rent;
  rent.scheduler = wish.scheduler;
  rent.expires_at = Clock::Real().Now() + absl::Hours(1);
  ASSERT_OK(provider_->Rent(offers->front(), rent, kLabel));
  ASSERT_THAT(login_->asked, SizeIs(3));
  for (const size_t i : {1u, 2u}) {
    const std::string& line = login_->asked[i];
    EXPECT_THAT(line, HasSubstr("'--partition=main'"));
    EXPECT_THAT(line, HasSubstr("'--account=other'"));
    EXPECT_THAT(line, HasSubstr("'--qos=usual'"));
    EXPECT_THAT(line, HasSubstr("'--constraint=nvlink'"));
    EXPECT_THAT(line, HasSubstr("'--time=180'"));
    EXPECT_THAT(line, HasSubstr("'--mem=0' '--mem=64G'"));
  }
  // A partition that allows less has no offer.
  wish.scheduler.time = absl::Hours(5);
  EXPECT_THAT(*provider_->ListOffers(wish), IsEmpty());
}

TEST_F(SlurmTest, MakesADirectoryForResults) {
  Make({}, "~/kept results");
  Answer("mkdir", "/home/ada/kept results/x\n");
  Answer("sbatch", "17\n");
  Offer offer;
  offer.provider = "slurm";
  offer.ref = "main|h100|2|60|1";
  ASSERT_OK(provider_->Rent(offer, {}, kLabel));
  ASSERT_THAT(login_->asked, SizeIs(2));
  EXPECT_THAT(login_->asked[0], HasSubstr("$HOME"));
  const std::string& script = login_->inputs.back();
  const size_t at = script.find("GPUCTL_RESULTS_TOKEN=");
  ASSERT_NE(at, script.npos) << script;
  const std::string token = script.substr(at + 21, 32);
  EXPECT_THAT(login_->asked[0], HasSubstr(absl::StrCat("echo ", token, " >token")));
  EXPECT_THAT(script, HasSubstr("export GPUCTL_RESULTS='/home/ada/kept results/x' "));
  // A place that cannot be had is no reason not to rent.
  Make({}, "/root/x");
  Answer("mkdir", "", 1, "mkdir: cannot create directory");
  Answer("sbatch", "18\n");
  ASSERT_OK(provider_->Rent(offer, {}, kLabel));
  EXPECT_THAT(login_->inputs.back(), Not(HasSubstr("GPUCTL_RESULTS")));
  // Nothing is submitted when the login node cannot be asked.
  Make({}, "/data/x");
  Answer("sbatch", "19\n");
  EXPECT_FALSE(provider_->Rent(offer, {}, kLabel).ok());
  EXPECT_THAT(login_->asked, SizeIs(1));
}

TEST_F(SlurmTest, TellsWhoCancelledAJobAndThatItsTimeWasOver) {
  Answer("squeue", Row("CANCELLED"));
  Answer("sacct", "CANCELLED by 1234|0:0|60|60\n");
  Answer("id -un 1234", "ada\n");
  EXPECT_EQ(WordsOfGone(provider_->Describe("17").status()), "CANCELLED by ada");
  // Without accounting.
  login_->answers.clear();
  Answer("squeue", Row("CANCELLED"));
  Answer("sacct", "", 1, Recorded("sacct_without_accounting.err"));
  EXPECT_EQ(WordsOfGone(provider_->Describe("17").status()), "CANCELLED");
  // Our script ends when Slurm warns it, so the state is not TIMEOUT.
  login_->answers.clear();
  Answer("squeue", "", 1, Recorded("squeue_unknown.err"));
  Answer("sacct", "COMPLETED|0:0|3520|60\n");
  EXPECT_THAT(WordsOfGone(provider_->Describe("17").status()),
              StartsWith("TIMEOUT (it ended when"));
  login_->answers.clear();
  Answer("squeue", "", 1, Recorded("squeue_unknown.err"));
  Answer("sacct", "COMPLETED|0:0|1200|60\n");
  EXPECT_EQ(WordsOfGone(provider_->Describe("17").status()), "COMPLETED");
  login_->answers.clear();
  std::string over = Row("COMPLETED");
  over.replace(over.find("9:59"), 4, "1:21");
  Answer("squeue", over);
  EXPECT_EQ(WordsOfGone(provider_->Describe("17").status()),
            "TIMEOUT (it ended when Slurm warned it, with 1m21s left)");
}

TEST_F(SlurmTest, TellsThatAnAllocationCouldNotBeStartedAgain) {
  Answer("squeue", Row("FAILED"));
  Answer("sacct", "PREEMPTED|0:0|60|60\nFAILED|76:0|301|60\n");
  EXPECT_EQ(WordsOfGone(provider_->Describe("17").status()), kNotStartedAgainWords);
  // Later only the books have it.
  login_->answers.clear();
  Answer("squeue", "", 1, Recorded("squeue_unknown.err"));
  Answer("sacct", "PREEMPTED|0:0|60|60\nFAILED|76:0|301|60\n");
  EXPECT_EQ(WordsOfGone(provider_->Describe("17").status()), kNotStartedAgainWords);
  login_->answers.clear();
  Answer("squeue", Row("FAILED"));
  Answer("sacct", "FAILED|1:0|60|60\n");
  EXPECT_EQ(WordsOfGone(provider_->Describe("17").status()), "FAILED");
}

TEST_F(SlurmTest, OneQuestionListsAllJobs) {
  std::string rows;
  for (int i = 0; i < 50; ++i)
    rows += Row("PENDING", "Priority").replace(0, 2, absl::StrCat(i + 10));
  Answer("squeue", rows);
  const auto listed = provider_->ListInstances();
  ASSERT_OK(listed);
  EXPECT_THAT(*listed, SizeIs(50));
  EXPECT_THAT(login_->asked, SizeIs(1));
}

TEST_F(SlurmTest, ALostAnswerOfSbatchIsNoRefusal) {
  Offer offer;
  offer.provider = "slurm";
  offer.ref = "main|h100|2|60|1";
  login_->answers.emplace_back("sbatch", absl::UnknownError("the connection broke"));
  EXPECT_THAT(provider_->Rent(offer, {}, kLabel), StatusIs(absl::StatusCode::kUnknown));
  login_->answers.clear();
  Answer("sbatch", "", 1, Recorded("hung_sbatch.err"));
  EXPECT_THAT(provider_->Rent(offer, {}, kLabel), StatusIs(absl::StatusCode::kDeadlineExceeded));
  login_->answers.clear();
  Answer("sbatch", "welcome\n");
  EXPECT_THAT(provider_->Rent(offer, {}, kLabel), StatusIs(absl::StatusCode::kUnknown));
  offer.ref = "main|h100; reboot|2|60|1";
  EXPECT_THAT(provider_->Rent(offer, {}, kLabel), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(SlurmTest, DescribesAJobByItsState) {
  Answer("squeue", Row("RUNNING"));
  const auto running = provider_->Describe("17");
  ASSERT_OK(running);
  EXPECT_EQ(running->state, Instance::State::kRunning);
  EXPECT_EQ(running->label, kLabel);
  EXPECT_EQ(running->address->host, "login");
  EXPECT_EQ(running->gpu_count, 2);
  EXPECT_EQ(running->created_ms, int64_t{1789999990} * 1000);
  EXPECT_NEAR(static_cast<double>(running->ends_ms),
              static_cast<double>(absl::ToUnixMillis(Clock::Real().Now())) + 599'000, 60'000);
  login_->answers.clear();
  Answer("squeue", Row("PENDING", "PartitionTimeLimit"));
  EXPECT_EQ(provider_->Describe("17")->state, Instance::State::kFailed);
  // It has its node, and nothing there runs.
  login_->answers.clear();
  Answer("squeue", Row("SUSPENDED"));
  const auto suspended = provider_->Describe("17");
  ASSERT_OK(suspended);
  EXPECT_EQ(suspended->state, Instance::State::kRunning);
  EXPECT_TRUE(suspended->suspended);
  EXPECT_FALSE(suspended->tells_end);
  EXPECT_FALSE(running->suspended);
  login_->answers.clear();
  Answer("squeue", Row("PENDING", "job requeued in held state"));
  EXPECT_TRUE(provider_->Describe("17")->held);
  EXPECT_THAT(provider_->Describe("17")->status, Not(HasSubstr("expected to start")));
  login_->answers.clear();
  Answer("squeue", Row("TIMEOUT"));
  EXPECT_THAT(provider_->Describe("17"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("TIMEOUT")));
  EXPECT_TRUE(IsOwnEnd(provider_->Describe("17").status()));
  login_->answers.clear();
  Answer("squeue", Row("NODE_FAIL"));
  EXPECT_EQ(WordsOfGone(provider_->Describe("17").status()), "NODE_FAIL");
  EXPECT_FALSE(IsOwnEnd(provider_->Describe("17").status()));
  EXPECT_THAT(provider_->Describe("no-such-job"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(SlurmTest, OnlyTheControllersWordMakesAJobGone) {
  Answer("squeue", "", 1, Recorded("squeue_unknown.err"));
  Answer("sacct", "PREEMPTED|0:0\n");
  EXPECT_THAT(provider_->Describe("17"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("PREEMPTED")));
  for (const char* silent : {"dead_squeue.err", "hung_squeue.err"}) {
    login_->answers.clear();
    Answer("squeue", "", 1, Recorded(silent));
    EXPECT_THAT(provider_->Describe("17"), StatusIs(absl::StatusCode::kUnavailable)) << silent;
    EXPECT_THAT(provider_->ListInstances(), StatusIs(absl::StatusCode::kUnavailable)) << silent;
  }
  login_->answers.clear();
  login_->answers.emplace_back("squeue", absl::UnknownError("the connection broke"));
  EXPECT_THAT(provider_->Describe("17"), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(SlurmTest, ListsOurJobsAmongTheUsersOwn) {
  Answer("squeue",
         absl::StrCat(Row("RUNNING"), "15_[4-49%4]|PENDING|N/A|4|10:00|N/A|main||Priority|x|;\n",
                      "16|RUNNING|5|4|9:59|N/A|main|n1|None|train|er|;\n"));
  const auto listed = provider_->ListInstances();
  ASSERT_OK(listed);
  ASSERT_THAT(*listed, SizeIs(1));
  EXPECT_EQ(listed->front().id, "17");
}

// A login node whose shell is this machine's.
class ShellLogin : public LoginNode {
 public:
  const SshAddress& address() const override { return address_; }
  absl::StatusOr<CommandAnswer> Run(const std::string& command, absl::string_view) override {
    CommandAnswer answer;
    ASSIGN_OR_RETURN(FdPair out, MakePipe("read what a shell prints"));
    SpawnOptions spawn;
    spawn.argv = {"/bin/sh", "-c", command};
    spawn.stdout_fd = out.second.get();
    ASSIGN_OR_RETURN(const pid_t pid, Spawn(spawn));
    out.second.reset();
    char buffer[4096];
    for (ssize_t n = 0; (n = read(out.first.get(), buffer, sizeof buffer)) > 0;) {
      answer.out.append(buffer, static_cast<size_t>(n));
    }
    int status = 0;
    if (waitpid(pid, &status, 0) != pid) return absl::UnknownError("no end");
    answer.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    return answer;
  }

 private:
  const SshAddress address_{"login", 0, "ada", {}, ""};
};

TEST(KeptResults, AreListedAndRemovedByTheirLeases) {
  const TempDir dir;
  const std::string results = JoinPath(dir.path(), "kept results");
  ShellLogin login;
  EXPECT_THAT(*ListKept(login, results), IsEmpty());
  EXPECT_OK(RemoveKept(login, results, kLabel));
  const std::string other = "gpuctl-00ff12ab-fedcba987654";
  const std::string copy = JoinPath(JoinPath(results, kLabel), "17-0");
  ASSERT_OK(MakeDirectories(JoinPath(copy, "jobs")));
  ASSERT_OK(MakeDirectories(JoinPath(results, "gpuctl-mine")));
  ASSERT_OK(MakeDirectories(JoinPath(results, other)));
  ASSERT_OK(WriteFileAtomic(JoinPath(copy, "node_id"), "n-1\n"));
  ASSERT_OK(WriteFileAtomic(JoinPath(copy, "jobs/big"), std::string(300000, 'x')));
  // A link of that name leads to files of somebody else's.
  const std::string elsewhere = JoinPath(dir.path(), "elsewhere");
  ASSERT_OK(MakeDirectories(elsewhere));
  const std::string link = "gpuctl-00ff12ab-aaaaaaaaaaaa";
  ASSERT_EQ(symlink(elsewhere.c_str(), JoinPath(results, link).c_str()), 0);
  const auto all = ListKept(login, results);
  ASSERT_OK(all);
  ASSERT_THAT(*all, SizeIs(2));
  EXPECT_EQ((*all)[0].label, kLabel);
  EXPECT_TRUE((*all)[0].has_jobs);
  EXPECT_GE((*all)[0].bytes, 300000);
  EXPECT_EQ((*all)[1].label, other);
  EXPECT_FALSE((*all)[1].has_jobs);
  EXPECT_LT((*all)[1].unchanged, absl::Hours(1));
  ASSERT_THAT(*FindKept(login, results, kLabel), SizeIs(1));
  for (const char* bad :
       {"", ".", "..", "gpuctl-mine", "gpuctl-*", "gpuctl-00ff12ab-*", "a; true"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(RemoveKept(login, results, bad))) << bad;
    EXPECT_FALSE(FindKept(login, results, bad).ok()) << bad;
  }
  // Of an allocation with several nodes, one of the others may be the only one that kept something.
  ASSERT_OK(MakeDirectories(JoinPath(results, absl::StrCat(other, "/node-1/17-0/jobs"))));
  EXPECT_FALSE(FindKept(login, results, other)->front().has_jobs);
  ASSERT_OK(WriteFileAtomic(JoinPath(results, absl::StrCat(other, "/node-1/17-0/node_id")), "n"));
  EXPECT_TRUE(FindKept(login, results, other)->front().has_jobs);
  ASSERT_OK(RemoveKept(login, results, kLabel));
  EXPECT_THAT(*FindKept(login, results, kLabel), IsEmpty());
  EXPECT_TRUE(PathExists(JoinPath(results, other)));
  EXPECT_TRUE(PathExists(JoinPath(results, "gpuctl-mine")));
}

TEST(KeptResults, AnAnswerThatIsCutIsNone) {
  FakeLogin login;
  login.answers.emplace_back("for d in", CommandAnswer{0, absl::StrCat(kLabel, "|1|5|7\n"), ""});
  EXPECT_TRUE(absl::IsUnknown(ListKept(login, "/data").status()));
  login.answers.front().second = CommandAnswer{0, absl::StrCat(kLabel, "|1|5|7\nall\n"), ""};
  ASSERT_THAT(*ListKept(login, "/data"), SizeIs(1));
  login.answers.front().second = CommandAnswer{124, "", ""};
  EXPECT_FALSE(ListKept(login, "/data").ok());
  login.answers.clear();
  EXPECT_TRUE(absl::IsUnavailable(ListKept(login, "/data").status()));
}

}  // namespace
}  // namespace gpuctl
