// The setup of jobs, by real shims: several jobs of one node root.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/base/processes.h"
#include "agent/envs/env_store.h"
#include "agent/shim/attempt.h"
#include "agent/shim/test_job.h"
#include "common/base/clock.h"
#include "common/files/file_lock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using Type = LifecycleEvent::Type;

class ShimSetupTest : public ::testing::Test {
 protected:
  ShimSetupTest() : root_(node_.path()) { EXPECT_OK(MakeDirectories(root_.jobs)); }
  ~ShimSetupTest() override { EXPECT_TRUE(ProcessesWith(kBuildsVariable).empty()); }

  // Returns a job of this root with `setup`.
  std::unique_ptr<TestJob> Job(const std::string& setup, const std::string& run) {
    auto job = std::make_unique<TestJob>(TestJob::Bash(run), root_.jobs);
    job->spec.set_setup(setup);
    return job;
  }
  static void Write(const TestJob& job, const std::string& name, const std::string& text) {
    ASSERT_OK(WriteFileAtomic(JoinPath(job.paths().work, name), text, 0644));
  }
  std::vector<std::string> Envs() const {
    return ListDirectory(root_.envs).value_or(std::vector<std::string>());
  }
  EnvPaths OnlyEnv() const {
    EXPECT_THAT(Envs(), SizeIs(1));
    return EnvPaths(root_, Envs().empty() ? "none" : Envs()[0]);
  }
  static std::vector<Type> Types(const TestJob& job) {
    std::vector<Type> types;
    for (const LifecycleEvent& event : job.ReadLifecycle().events) types.push_back(event.type);
    return types;
  }

  TempDir node_;
  RootPaths root_;
};

TEST_F(ShimSetupTest, MakesTheEnvironmentOnceForTheSameInputs) {
  const std::string setup = "echo making; mkdir $GPUCTL_ENV_DIR/bin; cp tool $GPUCTL_ENV_DIR/bin/";
  for (int i = 0; i < 2; ++i) {
    auto job = Job(setup, "tool; echo $GPUCTL_ENV_DIR");
    Write(*job, "tool", "#!/bin/sh\necho the tool\n");
    ASSERT_EQ(chmod(JoinPath(job->paths().work, "tool").c_str(), 0755), 0);
    EXPECT_EQ(job->Run(), kShimDone);
    EXPECT_EQ(job->Exited().exit_code, 0) << job->Output();
    EXPECT_EQ(job->Exited().phase, "");
    EXPECT_THAT(Types(*job),
                ElementsAre(Type::kStarted, Type::kSetupStarted, Type::kSetupEnded, Type::kExited));
    const LifecycleEvent ended = job->Events(Type::kSetupEnded)[0];
    EXPECT_EQ(ended.exit_code, 0);
    EXPECT_EQ(ended.reason, i == 0 ? "" : kReusedReason);
    EXPECT_EQ(ended.environment, Envs()[0]);
    // The job's own output begins where the line says.
    const std::string own = job->Output().substr(static_cast<size_t>(ended.output_size));
    EXPECT_EQ(own, absl::StrCat("the tool\n", OnlyEnv().prefix, "\n"));
    EXPECT_EQ(absl::StrContains(job->Output(), "making\n"), i == 0);
    EXPECT_THAT(job->Output(), HasSubstr(i == 0 ? "gpuctl: setup: done in " : "there already"));
    EXPECT_EQ(job->ShimStderr(), "");
    const SetupState state = *SetupOf(job->ReadLifecycle());
    EXPECT_FALSE(state.running);
    EXPECT_FALSE(state.failed);
    EXPECT_EQ(state.reused, i == 1);
  }
  // Another content makes another environment.
  auto job = Job(setup, "tool");
  Write(*job, "tool", "#!/bin/sh\necho another\n");
  ASSERT_EQ(chmod(JoinPath(job->paths().work, "tool").c_str(), 0755), 0);
  EXPECT_EQ(job->Run(), kShimDone);
  EXPECT_THAT(job->Output(), HasSubstr("\nanother\n"));
  EXPECT_THAT(Envs(), SizeIs(2));
}

TEST_F(ShimSetupTest, AFailureEndsTheAttemptWithItsCode) {
  auto job = Job("echo before; exit 3", "echo never");
  job->spec.mutable_retry()->set_max_retries(3);
  job->spec.mutable_retry()->add_on("failed");
  EXPECT_EQ(job->Run(), kShimDone);
  EXPECT_EQ(job->Exited().exit_code, 3);
  EXPECT_EQ(job->Exited().phase, kSetupPhase);
  EXPECT_EQ(job->Exited().error, "");
  EXPECT_THAT(job->Events(Type::kRetry), SizeIs(0));
  EXPECT_THAT(job->Output(), HasSubstr("failed with exit code 3"));
  EXPECT_THAT(job->Output(), Not(HasSubstr("never")));
  EXPECT_TRUE(SetupOf(job->ReadLifecycle())->failed);
  EXPECT_FALSE(PathExists(OnlyEnv().complete));
  EXPECT_FALSE(PathExists(OnlyEnv().prefix));
  // With exit:N it is.
  auto again = Job("test -e ../tried || { touch ../tried; exit 3; }", "echo ran");
  again->spec.mutable_retry()->set_max_retries(3);
  again->spec.mutable_retry()->add_on("exit:3");
  EXPECT_EQ(again->Run(), kShimDone);
  EXPECT_THAT(again->Events(Type::kRetry), SizeIs(1));
  EXPECT_EQ(again->Run(2), kShimDone);
  EXPECT_THAT(again->Output(), HasSubstr("\nran\n"));
}

TEST_F(ShimSetupTest, TheSecondOfTwoWaitsForTheFirst) {
  const std::string setup =
      "echo making; until [ -e " + node_.path() + "/go ]; do sleep 0.01; done";
  auto first = Job(setup, "echo first");
  auto second = Job(setup, "echo second");
  const pid_t one = first->Start();
  ASSERT_TRUE(first->WaitForOutput("making"));
  const pid_t two = second->Start();
  ASSERT_TRUE(second->WaitForOutput("another run makes it; waiting"));
  EXPECT_TRUE(SetupOf(second->ReadLifecycle())->running);
  node_.Write("go", "");
  EXPECT_EQ(first->Wait(one), kShimDone);
  EXPECT_EQ(second->Wait(two), kShimDone);
  EXPECT_THAT(second->Output(), Not(HasSubstr("making")));
  EXPECT_THAT(second->Output(), HasSubstr("there already"));
  EXPECT_TRUE(SetupOf(second->ReadLifecycle())->reused);
}

TEST_F(ShimSetupTest, OneThatWaitsCanBeStopped) {
  const std::string setup = "echo making; sleep 1000";
  auto first = Job(setup, "true");
  auto second = Job(setup, "true");
  const pid_t one = first->Start();
  ASSERT_TRUE(first->WaitForOutput("making"));
  const pid_t two = second->Start();
  ASSERT_TRUE(second->WaitForOutput("waiting"));
  second->Control("stop user");
  EXPECT_EQ(second->Wait(two), kShimDone);
  EXPECT_EQ(second->Exited().signal, SIGTERM);
  EXPECT_EQ(second->Exited().phase, kSetupPhase);
  first->Control("stop user");
  EXPECT_EQ(first->Wait(one), kShimDone);
  EXPECT_EQ(first->Exited().signal, SIGTERM);
  EXPECT_EQ(first->Exited().reason, "user");
  EXPECT_THAT(first->Output(), HasSubstr("setup: stopped after"));
  EXPECT_FALSE(PathExists(OnlyEnv().complete));
}

TEST_F(ShimSetupTest, AKilledOneLeavesNothingThatCounts) {
  const std::string setup =
      "touch $GPUCTL_ENV_DIR/half; echo making; [ -e " + node_.path() + "/go ] || sleep 1000";
  auto first = Job(setup, "true");
  const pid_t one = first->Start();
  ASSERT_TRUE(first->WaitForOutput("making"));
  kill(one, SIGKILL);
  EXPECT_EQ(first->Wait(one), 128 + SIGKILL);
  node_.Write("go", "");
  auto second = Job(setup, "ls $GPUCTL_ENV_DIR");
  EXPECT_EQ(second->Run(), kShimDone);
  EXPECT_THAT(second->Output(), HasSubstr("making"));
  EXPECT_TRUE(PathExists(OnlyEnv().complete));
  // What the first one's setup left is gone, so that nobody writes there any more.
  EXPECT_FALSE(first->HasProcesses());
}

TEST_F(ShimSetupTest, WhatItLeavesRunningIsEnded) {
  auto job =
      Job("(setsid bash -c 'trap \"\" TERM; exec sleep 1000' >/dev/null 2>&1 &); "
          "env -i sleep 1000 & echo made",
          "echo ran; sleep 1000");
  const pid_t shim = job->Start();
  ASSERT_TRUE(job->WaitForOutput("\nran\n"));
  EXPECT_THAT(job->Output(), HasSubstr("setup: ends 2 processes that it left running"));
  // Nobody has the lock while the job runs.
  EXPECT_FALSE(*IsLocked(OnlyEnv().lock));
  // The environment is in use.
  EXPECT_TRUE(absl::IsUnavailable(TryLock(OnlyEnv().used).status()));
  job->Control("stop user");
  EXPECT_EQ(job->Wait(shim), kShimDone);
  EXPECT_OK(TryLock(OnlyEnv().used));
}

TEST_F(ShimSetupTest, WhatRefersToTheWorkDirectoryIsForOneRun) {
  const std::string setup = "touch made-here";
  auto first = Job(setup, "sleep 1000");
  const pid_t one = first->Start();
  ASSERT_TRUE(first->WaitForOutput("for this run alone, because the setup made made-here"));
  ASSERT_TRUE(first->WaitForEvent(Type::kSetupEnded));
  auto second = Job(setup, "ls");
  EXPECT_EQ(second->Run(), kShimDone);
  EXPECT_THAT(second->Output(), HasSubstr("this run makes its own"));
  EXPECT_THAT(second->Output(), HasSubstr("\nmade-here\n"));
  EXPECT_THAT(Envs(), SizeIs(2));
  first->Control("stop user");
  EXPECT_EQ(first->Wait(one), kShimDone);
  // Once nobody uses the first one, its place is taken.
  auto third = Job(setup, "ls");
  EXPECT_EQ(third->Run(), kShimDone);
  EXPECT_THAT(third->Output(), HasSubstr("\nmade-here\n"));
  EXPECT_THAT(Envs(), SizeIs(2));
}

TEST_F(ShimSetupTest, ARetryUsesWhatTheFirstAttemptMade) {
  auto job = Job("echo making; touch here", "test $GPUCTL_ATTEMPT = 2 || exit 5; echo second");
  Write(*job, "requirements.txt", "one\n");
  job->spec.mutable_retry()->set_max_retries(1);
  job->spec.mutable_retry()->add_on("failed");
  EXPECT_EQ(job->Run(), kShimDone);
  EXPECT_EQ(job->Events(Type::kExited)[0].phase, "");
  // The job may write into its directory.
  Write(*job, "requirements.txt", "two\n");
  EXPECT_EQ(job->Run(2), kShimDone);
  const std::string output = job->Output();
  EXPECT_EQ(output.find("making"), output.rfind("making")) << output;
  EXPECT_THAT(output, HasSubstr("\nsecond\n"));
}

TEST_F(ShimSetupTest, OneThatWasRemovedByHandIsMadeAgain) {
  const std::string setup = "echo making; touch $GPUCTL_ENV_DIR/x";
  auto first = Job(setup, "true");
  EXPECT_EQ(first->Run(), kShimDone);
  ASSERT_OK(RemoveTree(OnlyEnv().prefix));
  auto second = Job(setup, "ls $GPUCTL_ENV_DIR");
  EXPECT_EQ(second->Run(), kShimDone);
  EXPECT_THAT(second->Output(), HasSubstr("making"));
  ASSERT_OK(RemoveTree(root_.envs));
  auto third = Job(setup, "ls $GPUCTL_ENV_DIR");
  EXPECT_EQ(third->Run(), kShimDone);
  EXPECT_THAT(third->Output(), HasSubstr("making"));
}

TEST_F(ShimSetupTest, ItsEnvironmentAndSecrets) {
  auto job = Job("env | sort; echo \"secret: $TOKEN\" | tr a-z b-za", "echo run; env | sort");
  job->spec.add_secret_names("TOKEN");
  (*job->spec.mutable_env())["UV_CACHE_DIR"] = "/my/cache";
  (*job->spec.mutable_env())["HOME"] = node_.path();
  const pid_t shim = job->Start(1, EncodeForShim({{"TOKEN", "hush"}}));
  EXPECT_EQ(job->Wait(shim), kShimDone);
  const std::string output = job->Output();
  const std::string made = output.substr(0, output.find("\nrun\n"));
  const std::string ran = output.substr(output.find("\nrun\n"));
  const std::string prefix = OnlyEnv().prefix;
  for (const std::string& part : {made, ran}) {
    EXPECT_THAT(part, HasSubstr(absl::StrCat("\nGPUCTL_ENV_DIR=", prefix, "\n")));
    EXPECT_THAT(part, HasSubstr("\nUV_CACHE_DIR=/my/cache\n"));
    EXPECT_THAT(part, HasSubstr(absl::StrCat("\nPIP_CACHE_DIR=", root_.caches, "/pip\n")));
    EXPECT_THAT(part, HasSubstr("\nTOKEN=hush\n"));
  }
  EXPECT_THAT(made, HasSubstr(absl::StrCat("\nPATH=", prefix, "/bin:")));
  EXPECT_THAT(made, HasSubstr(absl::StrCat("\nVIRTUAL_ENV=", prefix, "\n")));
  EXPECT_THAT(made, HasSubstr("tfdsfu: ivti"));
  // It made nothing that these would mean.
  EXPECT_THAT(ran, Not(HasSubstr("VIRTUAL_ENV")));
  EXPECT_THAT(ran, Not(HasSubstr(kBuildsVariable)));
  EXPECT_THAT(ran, Not(HasSubstr(absl::StrCat(prefix, "/bin:"))));
}

TEST_F(ShimSetupTest, AVenvIsTheJobsPython) {
  auto job =
      Job("mkdir $GPUCTL_ENV_DIR/bin; ln -s /bin/true $GPUCTL_ENV_DIR/bin/python; "
          "echo 'version = 3.11.2' > $GPUCTL_ENV_DIR/pyvenv.cfg; "
          "site=$GPUCTL_ENV_DIR/lib/python3.11/site-packages; "
          "mkdir -p $site/torch-2.4.0.dist-info $site/a_b-1.dist-info; "
          "printf 'Name: a-b\\nVersion: 1.0\\n' > $site/a_b-1.dist-info/METADATA",
          "command -v python; echo $VIRTUAL_ENV $UV_PROJECT_ENVIRONMENT $UV_NO_SYNC");
  EXPECT_EQ(job->Run(), kShimDone);
  const std::string prefix = OnlyEnv().prefix;
  EXPECT_THAT(job->Output(),
              HasSubstr(absl::StrCat("\n", prefix, "/bin/python\n", prefix, " ", prefix, " 1\n")));
  EXPECT_THAT(PackagesOf(job->ReadLifecycle()),
              ElementsAre("python==3.11.2", "a-b==1.0", "torch==2.4.0"));
  auto again = Job(job->spec.setup(), "true");
  EXPECT_EQ(again->Run(), kShimDone);
  EXPECT_THAT(PackagesOf(again->ReadLifecycle()), SizeIs(3));
  // A Python that is gone makes the environment useless.
  ASSERT_EQ(unlink(JoinPath(prefix, "bin/python").c_str()), 0);
  auto third = Job(job->spec.setup(), "true");
  EXPECT_EQ(third->Run(), kShimDone);
  EXPECT_THAT(third->Output(), HasSubstr("setup: makes environment"));
}

TEST_F(ShimSetupTest, MuchOutputIsKeptInOrder) {
  auto job = Job("head -c 100000000 /dev/zero | tr '\\0' x; echo; echo made", "echo ran");
  EXPECT_EQ(job->Run(), kShimDone);
  EXPECT_GT(job->Output().size(), 100'000'000u);
  EXPECT_THAT(std::string(job->Output().substr(job->Output().size() - 100)),
              HasSubstr("made\ngpuctl: setup: done in"));
  EXPECT_THAT(std::string(job->Output().substr(job->Output().size() - 5)), HasSubstr("ran\n"));
}

TEST_F(ShimSetupTest, OutputBeyondItsLimitIsCutAndTold) {
  auto job = Job("head -c 300000 /dev/zero | tr '\\0' x; echo; echo made", "echo ran");
  job->spec.set_output_segment_bytes(4096);
  job->spec.set_output_limit_bytes(12288);
  EXPECT_EQ(job->Run(), kShimDone);
  EXPECT_EQ(job->Exited().exit_code, 0);
  EXPECT_THAT(job->Events(Type::kCut), Not(SizeIs(0)));
  EXPECT_LE(job->Output().size(), 12288u);
  EXPECT_THAT(job->Output(), HasSubstr("made\ngpuctl: setup: done in"));
  EXPECT_THAT(job->Output(), HasSubstr("\nran\n"));
}

TEST_F(ShimSetupTest, OneThatIsRemovedUnderALiveRunIsMadeAgain) {
  const std::string setup = "echo making; touch $GPUCTL_ENV_DIR/x";
  auto first = Job(setup, "sleep 1000");
  const pid_t one = first->Start();
  ASSERT_TRUE(first->WaitForEvent(Type::kSetupEnded));
  // The node does not do that, as long as the run lives. Its user may.
  EXPECT_EQ(*SweepEnvs(root_, int64_t{1} << 60, Clock::Real()), std::vector<std::string>());
  ASSERT_OK(RemoveTree(root_.envs));
  auto second = Job(setup, "ls $GPUCTL_ENV_DIR");
  EXPECT_EQ(second->Run(), kShimDone);
  EXPECT_THAT(second->Output(), HasSubstr("making"));
  EXPECT_THAT(second->Output(), HasSubstr("\nx\n"));
  first->Control("stop user");
  EXPECT_EQ(first->Wait(one), kShimDone);
  EXPECT_EQ(first->Exited().signal, SIGTERM);
}

TEST_F(ShimSetupTest, InputsThatCannotBeReadDoNotHoldItUp) {
  auto job = Job("cat requirements.txt || echo unreadable; ls secret || echo locked", "echo ran");
  const std::string work = job->paths().work;
  ASSERT_EQ(symlink("requirements.txt", JoinPath(work, "requirements.txt").c_str()), 0);  // a loop
  ASSERT_EQ(mkfifo(JoinPath(work, "pyproject.toml").c_str(), 0600), 0);
  ASSERT_EQ(mkdir(JoinPath(work, "secret").c_str(), 0), 0);
  EXPECT_EQ(job->Run(), kShimDone);
  EXPECT_EQ(job->Exited().exit_code, 0) << job->Output();
  EXPECT_THAT(job->Output(), HasSubstr("unreadable\n"));
  EXPECT_THAT(job->Output(), HasSubstr("\nran\n"));
}

TEST_F(ShimSetupTest, AnUnusableRootIsTold) {
  ASSERT_OK(WriteFileAtomic(root_.envs, "a file", 0644));
  auto job = Job("true", "true");
  EXPECT_EQ(job->Run(), kShimDone);
  EXPECT_EQ(job->Exited().exit_code, 126);
  EXPECT_EQ(job->Exited().phase, kSetupPhase);
  EXPECT_THAT(job->Exited().error, StartsWith("setup: "));
  EXPECT_THAT(job->Exited().error, HasSubstr("envs"));
}

TEST_F(ShimSetupTest, KilledAtAnyMomentTheNextOneIsWhole) {
  // The script writes 50 files, and the last one says that all are there.
  const std::string setup =
      "for i in $(seq 50); do echo $i > $GPUCTL_ENV_DIR/$i; done; echo all > $GPUCTL_ENV_DIR/all";
  unsigned seed = 20261126;
  if (const char* given = getenv("GPUCTL_TEST_SEED")) seed = static_cast<unsigned>(atoi(given));
  printf("seed %u\n", seed);
  int killed = 0;
  for (int round = 0; round < 25; ++round) {
    auto job = Job(absl::StrCat(setup, " # ", round / 5),
                   "test -e $GPUCTL_ENV_DIR/all && ls $GPUCTL_ENV_DIR | wc -l");
    const pid_t shim = job->Start();
    seed = seed * 1664525 + 1013904223;
    Clock::Real().SleepFor(absl::Microseconds(seed % 60'000));
    const std::vector<ProcessId> family = Descendants(shim);
    if (round % 2 == 0 || family.empty()) {
      kill(shim, SIGKILL);
    } else {
      SendSignal(family[seed % family.size()], SIGKILL);
    }
    const int code = job->Wait(shim);
    killed += code == kShimDone && job->Exited().exit_code == 0 ? 0 : 1;
    auto next = Job(job->spec.setup(), job->spec.argv(4));
    EXPECT_EQ(next->Run(), kShimDone);
    EXPECT_EQ(next->Exited().exit_code, 0) << next->Output();
    EXPECT_THAT(next->Output(), HasSubstr("\n51\n"));
  }
  EXPECT_GT(killed, 0);
}

}  // namespace
}  // namespace gpuctl
