// Arrays: what Slurm says of one was recorded (tests/slurm/recorded/array_*), and the provider over
// a login node that answers with that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/files/files.h"
#include "provisioning/market/label.h"
#include "provisioning/slurm/slurm_provider.h"
#include "provisioning/slurm/slurm_text.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

std::string RecordedOfArray(const std::string& name) {
  const char* const folder = std::getenv("GPUCTL_SLURM_RECORDED");
  if (folder == nullptr) return "";
  return ReadFileToString(JoinPath(folder, absl::StrCat("array_", name))).value_or("");
}

class ArrayLogin : public LoginNode {
 public:
  const SshAddress& address() const override { return address_; }
  absl::StatusOr<CommandAnswer> Run(const std::string& command, absl::string_view input) override {
    asked.push_back(command);
    inputs.emplace_back(input);
    for (const auto& [word, answer] : answers) {
      if (absl::StrContains(command, word)) return answer;
    }
    return absl::UnavailableError("no answer for it");
  }
  std::vector<std::pair<std::string, absl::StatusOr<CommandAnswer>>> answers;
  std::vector<std::string> asked, inputs;

 private:
  const SshAddress address_{"login", 0, "ada", {}, ""};
};

class SlurmArrayTest : public ::testing::Test {
 protected:
  SlurmArrayTest() { Make("~/kept"); }
  void Make(const std::string& results) {
    SlurmOptions options;
    options.results = results;
    login_ = std::make_shared<ArrayLogin>();
    provider_ = MakeSlurmProvider(login_, std::move(options), Clock::Real());
  }
  void Answer(const std::string& word, const std::string& out, int code = 0,
              const std::string& err = "") {
    login_->answers.emplace_back(word, CommandAnswer{code, out, err});
  }
  static Offer AnOffer() {
    Offer offer;
    offer.provider = "slurm";
    offer.ref = "main|h100|1|60|1";
    return offer;
  }
  std::shared_ptr<ArrayLogin> login_;
  std::unique_ptr<Provider> provider_;
};

constexpr char kName[] = "gpuctl-00ff12ab-012345678000";

TEST(SlurmArrayText, ReadsHowManyTasksThereMayBe) {
  const std::string config = RecordedOfArray("config.out");
  ASSERT_FALSE(config.empty());
  EXPECT_EQ(MostTasksInConfig(config).value(), 11);
  EXPECT_EQ(MostTasksInConfig("MaxArraySize            = 0\n").value(), 0);
  EXPECT_FALSE(MostTasksInConfig("").ok());
  EXPECT_FALSE(MostTasksInConfig("MaxArraySize = many\n").ok());
  EXPECT_EQ(StatusOfFailure("submit", 1, RecordedOfArray("too_large.err"), /*making=*/true).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TaskLabels, DifferInTheirLastDigits) {
  EXPECT_EQ(TaskLease("0123456789ab", 0), "012345678000");
  EXPECT_EQ(TaskLease("012345678000", 10), "01234567800a");
  EXPECT_EQ(TaskLease("012345678000", kMostTasks - 1), "012345678fff");
  EXPECT_EQ(FormatLabel(TaskLabel({"00ff12ab", "0123456789ab"}, 1)),
            "gpuctl-00ff12ab-012345678001");
}

TEST_F(SlurmArrayTest, OneSubmissionIsManyMachines) {
  Answer("mkdir", absl::StrCat("/home/ada/kept/", kName, "\n"));
  Answer("sbatch", RecordedOfArray("submitted.out"));
  RentOptions options;
  options.start_script = "#!/bin/sh\necho it\n";
  const auto tasks = provider_->RentArray(AnOffer(), options, "gpuctl-00ff12ab-0123456789ab", 6, 2);
  ASSERT_OK(tasks);
  std::vector<std::string> ids, labels;
  for (const Instance& task : *tasks) {
    ids.push_back(task.id);
    labels.push_back(task.label);
  }
  EXPECT_THAT(ids, ElementsAre("3_0", "3_1", "3_2", "3_3", "3_4", "3_5"));
  EXPECT_EQ(labels.front(), kName);
  EXPECT_EQ(labels.back(), "gpuctl-00ff12ab-012345678005");
  ASSERT_THAT(login_->asked, SizeIs(2)) << "one to make the directories, one to submit";
  EXPECT_THAT(login_->asked[1], AllOf(HasSubstr("--array=0-5%2 "),
                                      HasSubstr(absl::StrCat("'--job-name=", kName, "'"))));
  // Each task finds its own directory, and ends with its run.
  EXPECT_THAT(login_->inputs[1],
              AllOf(HasSubstr("GPUCTL_RESULTS='/home/ada/kept/gpuctl-00ff12ab-012345678'\"$(printf "
                              "%03x \"$SLURM_ARRAY_TASK_ID\")\"\n"),
                    HasSubstr("export GPUCTL_HOLD_ONE_RUN=1 ")));
  // Without a limit.
  ASSERT_OK(provider_->RentArray(AnOffer(), options, kName, 1, 0));
  EXPECT_THAT(login_->asked.back(), HasSubstr("--array=0-0 "));
}

TEST_F(SlurmArrayTest, WithoutDirectoriesNothingIsSubmitted) {
  Answer("mkdir", "", 1, "mkdir: cannot create directory");
  Answer("sbatch", "3\n");
  EXPECT_THAT(provider_->RentArray(AnOffer(), {}, kName, 6, 2).status(),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(login_->asked, SizeIs(1));
  EXPECT_THAT(provider_->RentArray(AnOffer(), {}, kName, kMostTasks + 1, 0).status(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(provider_->RentArray(AnOffer(), {}, "mine", 1, 0).status(),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(SlurmArrayTest, ALostAnswerIsNoRefusal) {
  Answer("mkdir", absl::StrCat("/home/ada/kept/", kName, "\n"));
  Answer("sbatch", "", 124);
  EXPECT_THAT(provider_->RentArray(AnOffer(), {}, kName, 6, 2).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(SlurmArrayTest, AsksWhetherRunsCanBeLeftToTasks) {
  Answer("scontrol show config", RecordedOfArray("config.out"));
  Answer(".seen-by-nodes", "");
  EXPECT_EQ(provider_->MostInArray().value(), 11);
  EXPECT_THAT(login_->asked[0], HasSubstr("scontrol show config"));
  login_->answers.back().second = CommandAnswer{3, "", ""};
  EXPECT_THAT(provider_->MostInArray().status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no node has been seen")));
  login_->answers.front().second = CommandAnswer{0, "MaxArraySize = 0\n", ""};
  EXPECT_THAT(provider_->MostInArray().status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("MaxArraySize=0")));
  Make("");
  Answer("scontrol show config", RecordedOfArray("config.out"));
  EXPECT_THAT(provider_->MostInArray().status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("nothing is kept")));
  Make("~/kept");
  Answer("scontrol show config", "", 1,
         "slurm_load_ctl_conf error: Unable to contact slurm controller");
  EXPECT_THAT(provider_->MostInArray().status(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(SlurmArrayTest, ListsTasksAsMachinesOfTheirOwn) {
  Answer("squeue -h -r", RecordedOfArray("running.out"));
  const auto listed = provider_->ListInstances();
  ASSERT_OK(listed);
  std::vector<std::string> shown;
  for (const Instance& one : *listed) {
    shown.push_back(absl::StrCat(one.id, " ", one.label.substr(one.label.size() - 3), " ",
                                 one.state == Instance::State::kRunning ? "runs" : "waits"));
  }
  EXPECT_THAT(shown, ElementsAre("3_2 002 waits", "3_5 005 waits", "3_0 000 runs", "3_1 001 runs"));
}

TEST_F(SlurmArrayTest, WhatIsNotOneTaskIsNotUnderstood) {
  Answer("squeue -h -r", RecordedOfArray("in_one_line.out"));
  EXPECT_THAT(provider_->ListInstances().status(), StatusIs(absl::StatusCode::kUnknown));
}

TEST_F(SlurmArrayTest, LooksUpOneTask) {
  Answer("-j 3_3 ", RecordedOfArray("task_waiting.out"));
  auto task = provider_->Describe("3_3");
  ASSERT_OK(task);
  EXPECT_EQ(task->label, "gpuctl-00ff12ab-012345678003");
  EXPECT_EQ(task->state, Instance::State::kStarting);
  Answer("-j 3_4 ", RecordedOfArray("task_on_hold.out"));
  task = provider_->Describe("3_4");
  ASSERT_OK(task);
  EXPECT_TRUE(task->held);
  EXPECT_THAT(provider_->Describe("3_[0-5%2]").status(), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(SlurmArrayTest, TellsHowATaskEnded) {
  // It was cancelled while it stood with others in one line of the queue: the books have nothing.
  Answer("squeue", RecordedOfArray("task_gone.out"));
  Answer("sacct", RecordedOfArray("task_gone_in_books.out"));
  const absl::Status gone = provider_->Describe("3_3").status();
  EXPECT_EQ(WordsOfGone(gone), "CANCELLED (before it began)");
  EXPECT_TRUE(IsOwnEnd(gone));
  // It had a line of its own.
  login_->answers.clear();
  Answer("squeue", RecordedOfArray("task_gone.out"));
  Answer("sacct", RecordedOfArray("task_held_in_books.out"));
  Answer("id -un 20771", "ada\n");
  EXPECT_EQ(WordsOfGone(provider_->Describe("3_4").status()), "CANCELLED by ada");
  login_->answers.clear();
  Answer("squeue", RecordedOfArray("task_over.out"));
  Answer("sacct", RecordedOfArray("task_over_in_books.out"));
  Answer("id -un 20771", "ada\n");
  EXPECT_EQ(WordsOfGone(provider_->Describe("3_0").status()), "CANCELLED by ada");
  // Without the books nobody knows.
  login_->answers.clear();
  Answer("squeue", RecordedOfArray("task_gone.out"));
  Answer("sacct", "", 1, "Slurm accounting storage is disabled");
  EXPECT_FALSE(IsOwnEnd(provider_->Describe("3_3").status()));
}

TEST_F(SlurmArrayTest, CancelsOneTask) {
  Answer("scancel", "");
  ASSERT_OK(provider_->Terminate("3_3"));
  EXPECT_THAT(login_->asked.back(), AllOf(HasSubstr("scancel 3_3"), Not(HasSubstr("--state"))));
  EXPECT_THAT(provider_->Terminate("3_[0-5]"), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace gpuctl
