// Tests of jobs with several processes: the shim and its launcher, with real processes.
#include <signal.h>
#include <unistd.h>

#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/base/processes.h"
#include "agent/shim/attempt.h"
#include "agent/shim/test_job.h"
#include "common/base/rank_mark.h"
#include "common/files/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using Type = LifecycleEvent::Type;

std::map<int, std::string> ByRank(const std::string& output) {
  std::map<int, std::string> texts;
  RankReader reader;
  const auto sink = [&texts](int rank, absl::string_view text) {
    texts[rank].append(text.data(), text.size());
  };
  reader.Read(output, sink);
  reader.End(sink);
  // bash tells the end of the `sleep` that it waits for.
  for (auto& [rank, text] : texts) text = absl::StrReplaceAll(text, {{"Terminated\n", ""}});
  return texts;
}

// Returns the pids that the processes wrote into the files `pid-RANK` of the work directory.
std::map<int, pid_t> Pids(const TestJob& job, int processes) {
  std::map<int, pid_t> pids;
  const bool all = WaitUntil([&] {
    for (int rank = 0; rank < processes; ++rank) {
      const auto text = ReadFileToString(JoinPath(job.paths().work, absl::StrCat("pid-", rank)));
      if (!text.ok() || !absl::EndsWith(*text, "\n") ||
          !absl::SimpleAtoi(absl::StripSuffix(*text, "\n"), &pids[rank])) {
        return false;
      }
    }
    return true;
  });
  EXPECT_TRUE(all);
  return pids;
}

constexpr char kWaitForEver[] = "echo $$ > pid-$RANK; while :; do sleep 0.01; done";

TEST(ShimRanksTest, EachProcessHasItsRank) {
  TestJob job(TestJob::Bash(
      "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $GPUCTL_NODE_RANK "
      "$GPUCTL_NODES $GLOO_SOCKET_IFNAME; echo $MASTER_PORT > port-$RANK; readlink "
      "/proc/self/fd/0; "
      "echo '{\"step\":'$RANK'}' > $GPUCTL_METRICS"));
  job.spec.set_processes(3);
  EXPECT_EQ(job.Run(), kShimDone);
  EXPECT_EQ(job.Exited().exit_code, 0);
  EXPECT_EQ(job.Exited().detail, "");
  ASSERT_THAT(job.Events(Type::kStarted), SizeIs(1));
  EXPECT_EQ(job.Events(Type::kStarted)[0].processes, 3);
  const std::map<int, std::string> texts = ByRank(job.Output());
  EXPECT_THAT(texts, SizeIs(3));
  for (const auto& [rank, text] : texts) {
    EXPECT_EQ(text, absl::StrCat(rank, " ", rank, " 3 3 127.0.0.1 0 1 lo\n/dev/null\n"));
  }
  const auto port = ReadFileToString(JoinPath(job.paths().work, "port-0"));
  ASSERT_OK(port);
  EXPECT_EQ(*ReadFileToString(JoinPath(job.paths().work, "port-2")), *port);
  EXPECT_THAT(job.MetricsText(), HasSubstr("\"step\":0}"));
  EXPECT_THAT(job.MetricsText(), Not(HasSubstr("\"step\":1}")));
  EXPECT_FALSE(job.HasProcesses());
}

TEST(ShimRanksTest, AJobWithoutRanksHasOnlyItsPlace) {
  TestJob job(
      TestJob::Bash("echo ${RANK-none} ${WORLD_SIZE-none} $GPUCTL_NODE_RANK $GPUCTL_NODES; "
                    "echo '3| as it is'"));
  EXPECT_EQ(job.Run(), kShimDone);
  EXPECT_EQ(job.Output(), "none none 0 1\n3| as it is\n");
  EXPECT_EQ(job.Events(Type::kStarted)[0].processes, 0);
}

TEST(ShimRanksTest, AMachineOfAGangCountsOn) {
  TestJob job(TestJob::Bash("echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR:$MASTER_PORT"));
  job.spec.set_processes(2);
  auto& env = *job.spec.mutable_env();
  env["GPUCTL_NODE_RANK"] = "1";
  env["GPUCTL_NODES"] = "2";
  env["MASTER_ADDR"] = "10.1.2.3";
  env["MASTER_PORT"] = "4567";
  EXPECT_EQ(job.Run(), kShimDone);
  EXPECT_EQ(ByRank(job.Output()), (std::map<int, std::string>{{2, "2 0 4 10.1.2.3:4567\n"},
                                                              {3, "3 1 4 10.1.2.3:4567\n"}}));
}

TEST(ShimRanksTest, TheFirstThatFailsIsTheJobsEnd) {
  TestJob job(
      TestJob::Bash("trap 'echo saved; exit 9' TERM; echo $$ > pid-$RANK; "
                    "if [ $RANK = 2 ]; then while ! [ -s pid-0 -a -s pid-1 ]; do sleep 0.01; done; "
                    "echo 'ValueError: it is bad'; exit 7; fi; while :; do sleep 0.01; done"));
  job.spec.set_processes(3);
  EXPECT_EQ(job.Run(), kShimDone);
  const LifecycleEvent exited = job.Exited();
  EXPECT_EQ(exited.exit_code, 7);
  EXPECT_EQ(exited.error, "");
  EXPECT_EQ(exited.detail, "rank 2: exit code 7: ValueError: it is bad");
  const std::map<int, std::string> texts = ByRank(job.Output());
  EXPECT_EQ(texts.at(0), "saved\n");
  EXPECT_EQ(texts.at(1), "saved\n");
  EXPECT_EQ(texts.at(kLauncherRank),
            "rank 2 ended first, with exit code 7; the last lines that it printed:\n"
            "  ValueError: it is bad\n");
  EXPECT_FALSE(job.HasProcesses());
}

TEST(ShimRanksTest, WhatDoesNotEndGetsSigkillAfterTheGrace) {
  TestJob job(TestJob::Bash(
      "trap '' TERM; echo $$ > pid-$RANK; "
      "if [ $RANK = 1 ]; then while ! [ -s pid-0 ]; do sleep 0.01; done; kill -SEGV $$; fi; "
      "sleep 1000 & while :; do sleep 0.01; done"));
  job.spec.set_processes(2);
  job.spec.set_grace_ms(300);
  EXPECT_EQ(job.Run(), kShimDone);
  EXPECT_EQ(job.Exited().signal, SIGSEGV);
  EXPECT_THAT(job.Exited().detail, HasSubstr("rank 1: signal 11"));
  EXPECT_FALSE(job.HasProcesses());
}

TEST(ShimRanksTest, AStopReachesEachOnce) {
  TestJob job(
      TestJob::Bash("n=0; trap 'n=$((n+1)); echo term $n' TERM; echo $$ > pid-$RANK; "
                    "for i in $(seq 3000); do sleep 0.01 || :; [ $n = 0 ] || break; done; "
                    "for i in $(seq 20); do sleep 0.01 || :; done; exit $((75 - RANK * 75))"));
  job.spec.set_processes(2);
  const pid_t shim = job.Start();
  Pids(job, 2);
  job.Control("stop user");
  EXPECT_EQ(job.Wait(shim), kShimDone);
  EXPECT_EQ(job.Exited().exit_code, 75);
  EXPECT_EQ(job.Exited().reason, "user");
  EXPECT_EQ(job.Output().find("gpuctl|"), std::string::npos);
  EXPECT_EQ(ByRank(job.Output()), (std::map<int, std::string>{{0, "term 1\n"}, {1, "term 1\n"}}));
}

// One that saves and ends by itself decides, not one that SIGTERM ended before.
TEST(ShimRanksTest, AStoppedProcessDoesNotHideTheCodeOfOneThatSaves) {
  TestJob job(TestJob::Bash(
      "if [ $RANK = 0 ]; then trap 'sleep 0.3; exit 75' TERM; fi; echo $$ > pid-$RANK; "
      "while :; do sleep 0.01; done"));
  job.spec.set_processes(3);
  const pid_t shim = job.Start();
  Pids(job, 3);
  job.Control("stop user");
  EXPECT_EQ(job.Wait(shim), kShimDone);
  EXPECT_EQ(job.Exited().exit_code, 75);
}

TEST(ShimRanksTest, AStopNowLosesNoOutput) {
  TestJob job(TestJob::Bash(
      "trap '' TERM; head -c 200000 /dev/zero | tr '\\0' x; echo; echo last; echo $$ > pid-$RANK; "
      "while :; do sleep 0.01; done"));
  job.spec.set_processes(4);
  const pid_t shim = job.Start();
  Pids(job, 4);
  job.Control("stop now");
  EXPECT_EQ(job.Wait(shim), kShimDone);
  EXPECT_EQ(job.Exited().signal, SIGKILL);
  const std::string wanted = std::string(200000, 'x') + "\nlast\n";
  const std::map<int, std::string> texts = ByRank(job.Output());
  ASSERT_THAT(texts, SizeIs(4));
  for (const auto& [rank, text] : texts) EXPECT_TRUE(text == wanted) << rank;
  EXPECT_FALSE(job.HasProcesses());
}

TEST(ShimRanksTest, TheLaunchersDeathLeavesNothing) {
  TestJob job(TestJob::Bash(kWaitForEver));
  job.spec.set_processes(4);
  job.spec.set_grace_ms(200);
  const pid_t shim = job.Start();
  const std::map<int, pid_t> pids = Pids(job, 4);
  const pid_t launcher = static_cast<pid_t>(job.Events(Type::kStarted)[0].pid);
  kill(launcher, SIGKILL);
  EXPECT_EQ(job.Wait(shim), kShimDone);
  EXPECT_EQ(job.Exited().signal, SIGKILL);
  for (const auto& [rank, pid] : pids) EXPECT_FALSE(IsAlive(IdentityOf(pid))) << rank;
  EXPECT_FALSE(job.HasProcesses());
}

TEST(ShimRanksTest, TheShimsDeathLeavesNoProcess) {
  TestJob job(TestJob::Bash("echo $$ > pid-$RANK; exec sleep 1000"));
  job.spec.set_processes(4);
  const pid_t shim = job.Start();
  const std::map<int, pid_t> pids = Pids(job, 4);
  kill(shim, SIGKILL);
  job.Wait(shim);
  EXPECT_TRUE(WaitUntil([&] { return !job.HasProcesses(); }));
}

TEST(ShimRanksTest, ASignalFromOutsideReachesTheProcesses) {
  TestJob job(
      TestJob::Bash("trap 'echo usr1 > usr1-$RANK; exit 0' USR1; echo $$ > pid-$RANK; "
                    "while :; do sleep 0.01; done"));
  job.spec.set_processes(2);
  const pid_t shim = job.Start();
  Pids(job, 2);
  kill(static_cast<pid_t>(job.Events(Type::kStarted)[0].pid), SIGUSR1);
  EXPECT_EQ(job.Wait(shim), kShimDone);
  EXPECT_TRUE(PathExists(JoinPath(job.paths().work, "usr1-1")));
}

TEST(ShimRanksTest, AMissingProgramIsToldAsEver) {
  TestJob job({"no-such-program", "x"});
  job.spec.set_processes(2);
  EXPECT_EQ(job.Run(), kShimDone);
  EXPECT_EQ(job.Exited().exit_code, 127);
  EXPECT_EQ(job.Exited().error, "exec no-such-program: No such file or directory");
}

TEST(ShimRanksTest, GpusThatAreNotThere) {
  TestJob job({"true"});
  job.spec.set_processes(-1);
  (*job.spec.mutable_env())["CUDA_VISIBLE_DEVICES"] = "";
  EXPECT_EQ(job.Run(), kShimDone);
  EXPECT_EQ(job.Exited().exit_code, 126);
  EXPECT_THAT(job.Exited().error, HasSubstr("sees no GPU"));
}

TEST(ShimRanksTest, OneProcessForEachGpu) {
  TestJob job(TestJob::Bash("echo $CUDA_VISIBLE_DEVICES $LOCAL_RANK/$LOCAL_WORLD_SIZE"));
  job.spec.set_processes(-1);
  (*job.spec.mutable_env())["CUDA_VISIBLE_DEVICES"] = "4,5";
  EXPECT_EQ(job.Run(), kShimDone);
  EXPECT_EQ(ByRank(job.Output()), (std::map<int, std::string>{{0, "4,5 0/2\n"}, {1, "4,5 1/2\n"}}));
}

TEST(ShimRanksTest, ATakenPortIsTriedOnceMore) {
  // Rank 0 ends when the other has begun as well, because the other counts its beginnings, too.
  constexpr char kScript[] =
      "echo $MASTER_PORT >> ports-$RANK; "
      "if [ $RANK = 0 ]; then until cmp -s ports-0 ports-1; do sleep 0.01; done; "
      "[ $(wc -l < ports-0) -gt %d ] && exit 0; "
      "echo \"bind to port $MASTER_PORT (errno: 98 - Address already in use).\"; exit 1; fi; "
      "[ $(wc -l < ports-$RANK) -gt %d ] || sleep 1000";
  const auto script = [&](int times) {
    std::string text = kScript;
    for (size_t at; (at = text.find("%d")) != std::string::npos;) {
      text.replace(at, 2, absl::StrCat(times));
    }
    return text;
  };
  TestJob job(TestJob::Bash(script(1)));
  job.spec.set_processes(2);
  EXPECT_EQ(job.Run(), kShimDone);
  EXPECT_EQ(job.Exited().exit_code, 0);
  EXPECT_THAT(job.Output(), HasSubstr("was taken meanwhile"));
  const auto ports = ReadFileToString(JoinPath(job.paths().work, "ports-0"));
  ASSERT_OK(ports);
  EXPECT_THAT(std::vector<std::string>(absl::StrSplit(*ports, '\n', absl::SkipEmpty())), SizeIs(2));

  TestJob again(TestJob::Bash(script(9)));
  again.spec.set_processes(2);
  EXPECT_EQ(again.Run(), kShimDone);
  EXPECT_EQ(again.Exited().exit_code, 1);
  EXPECT_THAT(again.Exited().detail, HasSubstr("Address already in use"));

  TestJob given(TestJob::Bash(script(1)));
  given.spec.set_processes(2);
  (*given.spec.mutable_env())["MASTER_PORT"] = "29411";
  EXPECT_EQ(given.Run(), kShimDone);
  EXPECT_EQ(given.Exited().exit_code, 1);
}

TEST(ShimRanksTest, WhatOutlivesTheProcessesHasTheGrace) {
  TestJob job(TestJob::Bash("(sleep 0.4; echo late) & echo now"));
  job.spec.set_processes(2);
  EXPECT_EQ(job.Run(), kShimDone);
  EXPECT_EQ(job.Exited().exit_code, 0);
  EXPECT_EQ(ByRank(job.Output()),
            (std::map<int, std::string>{{0, "now\nlate\n"}, {1, "now\nlate\n"}}));

  TestJob daemon(TestJob::Bash("setsid sleep 1000 & echo now"));
  daemon.spec.set_processes(2);
  daemon.spec.set_grace_ms(200);
  EXPECT_EQ(daemon.Run(), kShimDone);
  EXPECT_EQ(daemon.Exited().exit_code, 0);
  EXPECT_FALSE(daemon.HasProcesses());
}

TEST(ShimRanksTest, ARetryCountsTheEndAsEver) {
  TestJob job(TestJob::Bash("[ $GPUCTL_ATTEMPT = 2 ] || exit $((RANK * 75))"));
  job.spec.set_processes(2);
  job.spec.mutable_retry()->set_max_retries(1);
  job.spec.mutable_retry()->add_on("exit:75");
  EXPECT_EQ(job.Run(1), kShimDone);
  EXPECT_EQ(job.ReadLifecycle().events.back().type, Type::kRetry);
  EXPECT_EQ(job.Run(2), kShimDone);
  EXPECT_EQ(job.Events(Type::kExited).back().exit_code, 0);
}

}  // namespace
}  // namespace gpuctl
