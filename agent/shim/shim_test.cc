// Tests of the shim as a process, with real jobs.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/base/processes.h"
#include "agent/shim/attempt.h"
#include "agent/shim/test_job.h"
#include "common/files/file_lock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Type = LifecycleEvent::Type;

// Expects the record of attempts that are over: one start, one end, the end last, and the real
// sizes.
void ExpectWellRecorded(const TestJob& job, int attempts = 1) {
  EXPECT_THAT(job.Events(Type::kStarted), SizeIs(attempts));
  const Lifecycle all = job.ReadLifecycle();
  EXPECT_EQ(all.skipped_lines, 0);
  ASSERT_FALSE(all.events.empty());
  const LifecycleEvent& last = all.events.back();
  ASSERT_TRUE(last.type == Type::kExited || last.type == Type::kRetry);
  StreamReader output(job.paths().output, OutputShape(job.spec));
  EXPECT_EQ(output.GetExtent()->size, last.output_size);
  EXPECT_EQ(static_cast<int64_t>(job.MetricsText().size()), last.metrics_size);
  EXPECT_FALSE(job.HasProcesses());
  EXPECT_FALSE(*IsLocked(job.paths().lock));
}

TEST(ShimTest, ExitCodeOutputAndMetrics) {
  TestJob job({FakeJobPath(), "--steps", "3", "--exit", "7", "--stderr"});
  EXPECT_EQ(job.Run(), kShimDone);
  const LifecycleEvent exited = job.Exited();
  EXPECT_EQ(exited.exit_code, 7);
  EXPECT_EQ(exited.signal, 0);
  EXPECT_EQ(exited.error, "");
  EXPECT_EQ(exited.reason, "");
  EXPECT_EQ(job.Output(), "step 1/3\nstep 2/3\nstep 3/3\n");
  EXPECT_THAT(job.MetricsText(), HasSubstr("\"step\":3,\"loss\":0.333333}\n"));
  EXPECT_EQ(job.ShimStderr(), "");
  ExpectWellRecorded(job);
}

TEST(ShimTest, StartedIsOnRecordBeforeTheJobRuns) {
  TestJob job(TestJob::Bash("cat ../lifecycle.jsonl; echo $$; cut -d' ' -f22 /proc/$$/stat"));
  EXPECT_EQ(job.Run(), kShimDone);
  const std::vector<std::string> lines = absl::StrSplit(job.Output(), '\n');
  ASSERT_EQ(lines.size(), 4u);
  const auto started = ParseLifecycleEvent(lines[0]);
  ASSERT_OK(started);
  EXPECT_EQ(absl::StrCat(started->pid), lines[1]);
  EXPECT_EQ(absl::StrCat(started->start_time_ticks), lines[2]);
  EXPECT_FALSE(started->boot_id.empty());
}

TEST(ShimTest, AJobKilledBySignal) {
  TestJob job({FakeJobPath(), "--crash-at", "1"});
  EXPECT_EQ(job.Run(), kShimDone);
  EXPECT_EQ(job.Exited().signal, SIGABRT);
  EXPECT_EQ(job.Exited().exit_code, -1);
  ExpectWellRecorded(job);
}

TEST(ShimTest, AMissingCommandIs127WithTheCause) {
  TestJob job({"no-such-program"});
  EXPECT_EQ(job.Run(), kShimDone);
  EXPECT_EQ(job.Exited().exit_code, 127);
  EXPECT_EQ(job.Exited().error, "exec no-such-program: No such file or directory");
  EXPECT_EQ(job.Output(), "gpuctl: exec no-such-program: No such file or directory\n");
  ExpectWellRecorded(job);
}

TEST(ShimTest, WhatCannotBeExecutedIs126) {
  TestJob job({"./data"});
  ASSERT_OK(WriteFileAtomic(JoinPath(job.paths().work, "data"), "x", 0644));
  EXPECT_EQ(job.Run(), kShimDone);
  EXPECT_EQ(job.Exited().exit_code, 126);
  EXPECT_THAT(job.Exited().error, HasSubstr("ermission denied"));
}

TEST(ShimTest, TheCommandIsLookedUpInTheJobsPath) {
  TestJob job({"tool", "x"});
  (*job.spec.mutable_env())["PATH"] = absl::StrCat("/nowhere:", job.paths().work);
  ASSERT_OK(WriteFileAtomic(JoinPath(job.paths().work, "tool"), "echo script without shebang $1\n",
                            0755));
  EXPECT_EQ(job.Run(), kShimDone);
  EXPECT_EQ(job.Output(), "script without shebang x\n");
}

TEST(ShimTest, TheJobsSurroundings) {
  TestJob job(TestJob::Bash(
      "pwd; umask; readlink /proc/self/fd/0; "
      "for fd in /proc/$$/fd/*; do echo -n \"${fd##*/} \"; done; echo;"
      "grep -E '^Sig(Blk|Ign)' /proc/self/status; ulimit -c; ps -o sid= -o pgid= -p $$;"
      "cat /proc/self/oom_score_adj; env"));
  (*job.spec.mutable_env())["MINE"] = "1 2";
  rlimit core{};
  getrlimit(RLIMIT_CORE, &core);
  EXPECT_EQ(job.Run(), kShimDone);
  const std::vector<std::string> lines = absl::StrSplit(job.Output(), '\n');
  ASSERT_GT(lines.size(), 10u);
  EXPECT_EQ(lines[0], job.paths().work);
  EXPECT_EQ(lines[1], "0022");
  EXPECT_EQ(lines[2], "/dev/null");
  EXPECT_EQ(lines[3], "0 1 2 3 ");  // 3 is that of the listing
  for (const int i : {4, 5}) EXPECT_THAT(lines[i], HasSubstr("\t0000000000000000"));
  EXPECT_EQ(lines[6] == "0", core.rlim_cur == 0);
  const std::string pid = absl::StrCat(job.Events(Type::kStarted)[0].pid);
  EXPECT_THAT(lines[7], ::testing::MatchesRegex(absl::StrCat(" *", pid, " +", pid)));
  EXPECT_THAT(job.Output(), HasSubstr("\nMINE=1 2\n"));
  EXPECT_THAT(job.Output(), HasSubstr("\nGPUCTL_ATTEMPT=1\n"));
  EXPECT_THAT(job.Output(), HasSubstr("\nPYTHONUNBUFFERED=1\n"));
  EXPECT_THAT(job.Output(), Not(HasSubstr("GPUCTL_RESUME_FROM")));
  EXPECT_THAT(job.Output(), Not(HasSubstr("GPUCTL_BIN_DIR")));
}

// --- every way a job can treat its descriptors ---------------------------------------------------

TEST(ShimTest, BinaryOutputIsKeptByteForByte) {
  TestJob job(
      TestJob::Bash("python3 -c 'import sys; sys.stdout.buffer.write(bytes(range(256))*4000)'"));
  EXPECT_EQ(job.Run(), kShimDone);
  std::string expected;
  for (int i = 0; i < 256 * 4000; ++i) expected.push_back(static_cast<char>(i % 256));
  EXPECT_TRUE(job.Output() == expected);
}

TEST(ShimTest, OneLineOfTenMegabytes) {
  TestJob job(TestJob::Bash("head -c 10000000 /dev/zero | tr '\\0' x"));
  job.spec.set_output_segment_bytes(1 << 20);
  EXPECT_EQ(job.Run(), kShimDone);
  EXPECT_TRUE(job.Output() == std::string(10000000, 'x'));
  ExpectWellRecorded(job);
}

TEST(ShimTest, AJobThatPrintsNothing) {
  TestJob job({"true"});
  EXPECT_EQ(job.Run(), kShimDone);
  EXPECT_EQ(job.Output(), "");
  ExpectWellRecorded(job);
}

TEST(ShimTest, AJobThatClosesItsOutputIsNotOver) {
  TestJob job(TestJob::Bash("echo before; exec >&- 2>&-; read -r < \"$FIFO\" || true; exit 5"));
  const std::string fifo = job.MakeFifo("gate");
  (*job.spec.mutable_env())["FIFO"] = fifo;
  const pid_t shim = job.Start();
  {
    const UniqueFd gate = job.Arrive(fifo);
    EXPECT_THAT(job.Events(Type::kExited), IsEmpty());
    EXPECT_TRUE(*IsLocked(job.paths().lock));
  }
  EXPECT_EQ(job.Wait(shim), kShimDone);
  EXPECT_EQ(job.Exited().exit_code, 5);
  EXPECT_EQ(job.Output(), "before\n");
}

TEST(ShimTest, DevStderrAndTeeDoNotTruncate) {
  TestJob job(TestJob::Bash(
      "echo 1; echo 2 > /dev/stderr; echo 3 | tee /dev/stderr; echo 4 > /dev/stdout"));
  EXPECT_EQ(job.Run(), kShimDone);
  EXPECT_EQ(job.Output(), "1\n2\n3\n3\n4\n");
}

TEST(ShimTest, FourRanksOpenTheMetricsForWriting) {
  TestJob job(TestJob::Bash(R"SH(
    for rank in 0 1 2 3; do
      python3 -c "
import os
for i in range(200):
  with open(os.environ['GPUCTL_METRICS'], 'w') as f:
    f.write('{\"rank\": $rank, \"i\": %d}\n' % i)" &
    done
    wait)SH"));
  EXPECT_EQ(job.Run(), kShimDone);
  const std::string metrics = job.MetricsText();
  std::map<std::string, int> seen;
  for (const absl::string_view line : absl::StrSplit(metrics, '\n', absl::SkipEmpty())) {
    ++seen[std::string(line.substr(line.find("\"rank\"")))];
  }
  EXPECT_EQ(seen.size(), 800u);
  ExpectWellRecorded(job);
}

// --- what a job leaves behind -------------------------------------------------------------------

TEST(ShimTest, ChildrenLeftBehindMayFinishWithinTheGrace) {
  TestJob job(TestJob::Bash("( read -r < \"$FIFO\" || true; echo late ) & exit 3"));
  const std::string fifo = job.MakeFifo("gate");
  (*job.spec.mutable_env())["FIFO"] = fifo;
  const pid_t shim = job.Start();
  {
    const UniqueFd gate = job.Arrive(fifo);
    const pid_t child = static_cast<pid_t>(job.Events(Type::kStarted)[0].pid);
    EXPECT_TRUE(WaitUntil([&] { return IdentityOf(child).start_time_ticks == 0; }));  // reaped
    EXPECT_THAT(job.Events(Type::kExited), IsEmpty());
  }
  EXPECT_EQ(job.Wait(shim), kShimDone);
  EXPECT_EQ(job.Output(), "late\n");
  EXPECT_EQ(job.Exited().exit_code, 3);
  ExpectWellRecorded(job);
}

TEST(ShimTest, AfterTheGraceTheyAreEnded) {
  TestJob job({FakeJobPath(), "--fork", "--daemon", "--exit", "4"});
  job.spec.set_grace_ms(50);
  EXPECT_EQ(job.Run(), kShimDone);
  EXPECT_EQ(job.Exited().exit_code, 4);
  EXPECT_EQ(job.Exited().reason, "");
  ExpectWellRecorded(job);
}

TEST(ShimTest, ACommandThatLeavesOthersRunningIsToldOnce) {
  TestJob job(TestJob::Bash("(while [ ! -e go ]; do sleep 0.05; done) & exit 3"));
  job.spec.set_grace_ms(600'000);
  const pid_t shim = job.Start();
  ASSERT_TRUE(job.WaitForEvent(Type::kLingering));
  const Lifecycle lifecycle = job.ReadLifecycle();
  const LifecycleEvent* lingering = LingeringEvent(lifecycle);
  ASSERT_NE(lingering, nullptr);
  EXPECT_EQ(lingering->exit_code, 3);
  EXPECT_NEAR(static_cast<double>(lingering->not_before_ms - lingering->time_ms), 600'000, 60'000);
  ASSERT_OK(WriteFileAtomic(JoinPath(job.paths().work, "go"), ""));
  EXPECT_EQ(job.Wait(shim), kShimDone);
  EXPECT_EQ(LingeringEvent(job.ReadLifecycle()), nullptr);
  EXPECT_THAT(job.Events(Type::kLingering), SizeIs(1));
  EXPECT_EQ(job.Exited().exit_code, 3);
  ExpectWellRecorded(job);
}

TEST(ShimTest, ADaemonThatIgnoresSigtermIsKilled) {
  TestJob job(TestJob::Bash("setsid bash -c \"trap '' TERM; env -i sleep 1000\" & exit 0"));
  job.spec.set_grace_ms(50);
  EXPECT_EQ(job.Run(), kShimDone);
  EXPECT_EQ(job.Exited().exit_code, 0);
  ExpectWellRecorded(job);
}

// --- stopping -----------------------------------------------------------------------------------

TEST(ShimTest, StopReachesTheProgramBehindBashAndWaitsForItsCheckpoint) {
  TestJob job(TestJob::Bash("true && python3 train.py"));
  ASSERT_OK(WriteFileAtomic(JoinPath(job.paths().work, "train.py"), R"(
import os, signal, sys
def save(number, frame):
    for part in range(200):
        with open('ckpt.tmp', 'a') as f: f.write(str(part) + '\n'); f.flush(); os.fsync(f.fileno())
    os.rename('ckpt.tmp', 'ckpt')
    print('saved')
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print('ready')
while True: signal.pause()
)"));
  const pid_t shim = job.Start();
  ASSERT_TRUE(job.WaitForOutput("ready\n"));
  job.Control("stop user");
  EXPECT_EQ(job.Wait(shim), kShimDone);
  EXPECT_TRUE(PathExists(JoinPath(job.paths().work, "ckpt")));
  EXPECT_EQ(job.Output(), "ready\nsaved\n");
  ASSERT_THAT(job.Events(Type::kStopping), SizeIs(1));
  EXPECT_EQ(job.Events(Type::kStopping)[0].reason, "user");
  EXPECT_EQ(job.Exited().reason, "user");
  EXPECT_EQ(job.Exited().output_size, 12);
  ExpectWellRecorded(job);
}

TEST(ShimTest, TheEnvironmentIsTheNodesWithoutItsKeys) {
  TempDir dir;
  dir.Write("pid1", std::string("PATH=/opt/node/bin:/usr/bin:/bin\0RUNPOD_API_KEY=r-key\0"
                                "CONTAINER_API_KEY=v-key\0LD_LIBRARY_PATH=/opt/node/lib\0",
                                108));
  TestJob job(TestJob::Bash("env"));
  setenv("GPUCTL_PID1_ENVIRON", dir.Sub("pid1").c_str(), 1);
  const pid_t shim = job.Start();
  unsetenv("GPUCTL_PID1_ENVIRON");
  EXPECT_EQ(job.Wait(shim), 0);
  EXPECT_THAT(job.Output(), HasSubstr("PATH=/opt/node/bin:/usr/bin:/bin\n"));
  EXPECT_THAT(job.Output(), HasSubstr("LD_LIBRARY_PATH=/opt/node/lib\n"));
  EXPECT_THAT(job.Output(), Not(HasSubstr("-key")));
}

// Only root reads PID 1's environment.
TEST(ShimTest, TheWholeEnvironmentIsOursWhereTheNodesIsHidden) {
  TempDir dir;
  TestJob job(TestJob::Bash("env"));
  setenv("GPUCTL_PID1_ENVIRON", dir.Sub("absent").c_str(), 1);
  setenv("CUDA_VISIBLE_DEVICES", "2,3", 1);
  setenv("ZZ_LAST", "z", 1);
  const pid_t shim = job.Start();
  for (const char* name : {"GPUCTL_PID1_ENVIRON", "CUDA_VISIBLE_DEVICES", "ZZ_LAST"})
    unsetenv(name);
  EXPECT_EQ(job.Wait(shim), 0);
  EXPECT_THAT(job.Output(), HasSubstr("CUDA_VISIBLE_DEVICES=2,3\n"));
  EXPECT_THAT(job.Output(), HasSubstr("ZZ_LAST=z\n"));
  EXPECT_THAT(job.Output(), HasSubstr(absl::StrCat("PATH=", getenv("PATH"), "\n")));
  EXPECT_THAT(job.Output(), Not(HasSubstr("GPUCTL_PID1_ENVIRON")));
}

TEST(ShimTest, AJobThatWasToldToStopDoesNotBegin) {
  TestJob job(TestJob::Bash("echo ran"));
  ASSERT_TRUE(WriteFileAtomic(job.paths().stop, "user\n").ok());
  EXPECT_EQ(job.Run(), kShimRefused);
  EXPECT_EQ(job.Output(), "");
}

TEST(ShimTest, StopReachesDaemonsWithoutOurEnvironmentAndStoppedProcesses) {
  TestJob job(
      TestJob::Bash("trap 'exit 9' TERM; setsid env -i sleep 1000 & "
                    "sleep 1000 & kill -STOP $!; echo ready; wait"));
  const pid_t shim = job.Start();
  ASSERT_TRUE(job.WaitForOutput("ready"));
  job.Control("stop limit:time");
  EXPECT_EQ(job.Wait(shim), kShimDone);
  EXPECT_EQ(job.Exited().exit_code, 9);
  EXPECT_EQ(job.Exited().reason, "limit:time");
  ExpectWellRecorded(job);
}

TEST(ShimTest, WhatIgnoresSigtermIsKilledAfterTheGrace) {
  TestJob job({FakeJobPath(), "--ignore-sigterm", "--fork", "--barrier", "end="});
  const std::string fifo = job.MakeFifo("gate");
  *job.spec.mutable_argv(4) = absl::StrCat("end=", fifo);
  job.spec.set_grace_ms(100);
  const pid_t shim = job.Start();
  const UniqueFd gate = job.Arrive(fifo);
  job.Control("stop user");
  EXPECT_EQ(job.Wait(shim), kShimDone);
  EXPECT_EQ(job.Exited().signal, SIGKILL);
  EXPECT_EQ(job.Exited().reason, "user");
  ExpectWellRecorded(job);
}

TEST(ShimTest, ASecondStopChangesNothingAndNowEndsTheGrace) {
  TestJob job({FakeJobPath(), "--on-term", "saved", "--barrier", "start=", "--barrier", "term="});
  const std::string start = job.MakeFifo("start");
  const std::string term = job.MakeFifo("term");
  *job.spec.mutable_argv(4) = absl::StrCat("start=", start);
  *job.spec.mutable_argv(6) = absl::StrCat("term=", term);
  const pid_t shim = job.Start();
  const UniqueFd at_start = job.Arrive(start);
  job.Control("stop user");
  const UniqueFd in_handler = job.Arrive(term);
  job.Control("stop limit:time");
  job.Control("nonsense");
  job.Control("signal 0");
  EXPECT_THAT(job.Events(Type::kStopping), SizeIs(1));
  job.Control("stop now");
  EXPECT_EQ(job.Wait(shim), kShimDone);
  EXPECT_EQ(job.Exited().signal, SIGKILL);
  EXPECT_EQ(job.Exited().reason, "user");
  EXPECT_THAT(job.Events(Type::kStopping), SizeIs(1));
  EXPECT_FALSE(PathExists(JoinPath(job.paths().checkpoints, "saved")));
  ExpectWellRecorded(job);
}

TEST(ShimTest, StopNowFromTheBeginning) {
  TestJob job({FakeJobPath(), "--ignore-sigterm", "--barrier", "start="});
  const std::string start = job.MakeFifo("start");
  *job.spec.mutable_argv(3) = absl::StrCat("start=", start);
  const pid_t shim = job.Start();
  const UniqueFd gate = job.Arrive(start);
  job.Control("stop now");
  EXPECT_EQ(job.Wait(shim), kShimDone);
  EXPECT_EQ(job.Exited().signal, SIGKILL);
  EXPECT_EQ(job.Exited().reason, "user");
}

TEST(ShimTest, ASignalIsPassedOn) {
  TestJob job({"python3", "-c",
               "import signal\n"
               "signal.signal(signal.SIGUSR1, lambda n, f: exit(6))\n"
               "print('ready')\n"
               "while True: signal.pause()"});
  const pid_t shim = job.Start();
  ASSERT_TRUE(job.WaitForOutput("ready"));
  job.Control(absl::StrCat("signal ", SIGUSR1));
  EXPECT_EQ(job.Wait(shim), kShimDone);
  EXPECT_EQ(job.Exited().exit_code, 6);
  EXPECT_EQ(job.Exited().reason, "");
}

TEST(ShimTest, SigtermToTheShimStopsTheJobAndCountsAsLost) {
  TestJob job({FakeJobPath(), "--on-term", "saved", "--barrier", "start="});
  const std::string start = job.MakeFifo("start");
  *job.spec.mutable_argv(4) = absl::StrCat("start=", start);
  job.spec.mutable_retry()->set_max_retries(1);
  job.spec.mutable_retry()->add_on("lost");
  const pid_t shim = job.Start();
  const UniqueFd gate = job.Arrive(start);
  kill(shim, SIGTERM);
  EXPECT_EQ(job.Wait(shim), kShimDone);
  EXPECT_EQ(job.Exited().reason, kShutdownReason);
  EXPECT_TRUE(PathExists(JoinPath(job.paths().checkpoints, "saved")));
  EXPECT_THAT(job.Events(Type::kRetry), SizeIs(1));
}

// --- attempts -----------------------------------------------------------------------------------

TEST(ShimTest, ASecondShimFindsTheLockHeld) {
  TestJob job({FakeJobPath(), "--barrier", "start="});
  const std::string start = job.MakeFifo("start");
  *job.spec.mutable_argv(2) = absl::StrCat("start=", start);
  const pid_t shim = job.Start();
  {
    const UniqueFd gate = job.Arrive(start);
    EXPECT_EQ(job.Run(), kShimLockHeld);
  }
  EXPECT_EQ(job.Wait(shim), kShimDone);
  ExpectWellRecorded(job);
}

TEST(ShimTest, TheSameAttemptRunsOnce) {
  TestJob job({FakeJobPath()});
  EXPECT_EQ(job.Run(), kShimDone);
  EXPECT_EQ(job.Run(), kShimRefused);
  EXPECT_EQ(job.Run(2), kShimRefused);
  EXPECT_EQ(job.Output(), "step 1/1\n");
  ExpectWellRecorded(job);
}

TEST(ShimTest, TenShimsAtOnceRunTheJobOnce) {
  TestJob job({FakeJobPath()});
  std::vector<pid_t> shims;
  for (int i = 0; i < 10; ++i) shims.push_back(job.Start());
  int done = 0;
  for (const pid_t shim : shims) {
    const int code = job.Wait(shim);
    EXPECT_TRUE(code == kShimDone || code == kShimLockHeld || code == kShimRefused) << code;
    done += code == kShimDone ? 1 : 0;
  }
  EXPECT_EQ(done, 1);
  EXPECT_EQ(job.Output(), "step 1/1\n");
}

TEST(ShimTest, ARetryResumesFromTheNewestVerifiedCheckpoint) {
  TestJob job(
      {FakeJobPath(), "--steps", "5", "--checkpoint-every", "2", "--resume", "--crash-at", "5"});
  job.spec.mutable_retry()->set_max_retries(1);
  job.spec.mutable_retry()->add_on("failed");
  job.spec.mutable_retry()->set_backoff_ms(1500);
  EXPECT_EQ(job.Run(), kShimDone);
  ASSERT_THAT(job.Events(Type::kRetry), SizeIs(1));
  const LifecycleEvent retry = job.Events(Type::kRetry)[0];
  EXPECT_EQ(retry.attempt, 2);
  EXPECT_EQ(retry.not_before_ms, retry.time_ms + 1500);
  EXPECT_EQ(job.Run(1), kShimRefused);
  EXPECT_EQ(job.Run(2), kShimDone);
  EXPECT_EQ(job.Output(), "step 1/5\nstep 2/5\nstep 3/5\nstep 4/5\nresumed from 4\n");
  EXPECT_THAT(job.Events(Type::kExited), SizeIs(2));
  EXPECT_THAT(job.Events(Type::kRetry), SizeIs(1));  // no third attempt
  EXPECT_THAT(job.MetricsText(), HasSubstr("{\"attempt\":1,"));
  ExpectWellRecorded(job, 2);
}

TEST(ShimTest, KillingTheShimKillsTheJobAndTheNextAttemptSweepsTheRest) {
  TestJob job({FakeJobPath(), "--pids", "--daemon", "--barrier", "end="});
  const std::string end = job.MakeFifo("end");
  *job.spec.mutable_argv(4) = absl::StrCat("end=", end);
  const pid_t shim = job.Start();
  UniqueFd gate = job.Arrive(end);
  const ProcessId child = IdentityOf(static_cast<pid_t>(job.Events(Type::kStarted)[0].pid));
  ASSERT_TRUE(job.WaitForOutput("step 1/1\n"));
  const std::string output = job.Output();
  int daemon_pid = 0;
  ASSERT_TRUE(absl::SimpleAtoi(
      output.substr(output.find("child ") + 6, output.find("\nstep") - output.find("child ") - 6),
      &daemon_pid));
  const ProcessId daemon = IdentityOf(daemon_pid);
  ASSERT_NE(daemon.start_time_ticks, 0);
  kill(shim, SIGKILL);
  EXPECT_EQ(job.Wait(shim), 128 + SIGKILL);
  EXPECT_TRUE(WaitUntil([&] { return !IsAlive(child); }));  // parent-death signal
  EXPECT_TRUE(IsAlive(daemon));
  EXPECT_FALSE(*IsLocked(job.paths().lock));  // neither of them holds it
  // The server does this.
  EXPECT_EQ(job.Run(2), kShimRefused);
  auto lifecycle = StreamWriter::Open(job.paths().lifecycle, PlainShape());
  LifecycleEvent line;
  line.type = Type::kLost;
  line.attempt = 1;
  ASSERT_OK(lifecycle->Append(FormatLifecycleEvent(line)));
  line.type = Type::kRetry;
  line.attempt = 2;
  ASSERT_OK(lifecycle->Append(FormatLifecycleEvent(line)));
  gate.reset();
  const pid_t second = job.Start(2);
  gate = job.Arrive(end);
  EXPECT_FALSE(IsAlive(daemon));
  gate.reset();
  job.Control("stop now");  // ends its daemon, too
  EXPECT_EQ(job.Wait(second), kShimDone);
  ExpectWellRecorded(job, 2);
}

TEST(ShimTest, WhereThereAreControlGroupsEvenAProcessWithoutTheMarkerIsSwept) {
  TestJob job(TestJob::Bash(  // Its number comes when its environment is empty.
      "env -i setsid sh -c 'echo $$; exec sleep 1000' & "
      "read -r < \"$FIFO\" || true"));
  const std::string fifo = job.MakeFifo("gate");
  (*job.spec.mutable_env())["FIFO"] = fifo;
  const pid_t shim = job.Start();
  const UniqueFd gate = job.Arrive(fifo);
  int pid = 0;
  ASSERT_TRUE(job.WaitForOutput("\n"));
  ASSERT_TRUE(absl::SimpleAtoi(absl::StripAsciiWhitespace(job.Output()), &pid));
  const ProcessId unmarked = IdentityOf(pid);
  kill(shim, SIGKILL);
  EXPECT_EQ(job.Wait(shim), 128 + SIGKILL);
  EXPECT_TRUE(IsAlive(unmarked));
  const bool grouped = PathExists(job.paths().cgroup_note);
  ASSERT_OK(SweepJob(job.paths(), job.spec.job_id(), absl::Seconds(30), Clock::Real()));
  EXPECT_EQ(IsAlive(unmarked), !grouped) << "a control group must have been enough";
  EXPECT_FALSE(PathExists(job.paths().cgroup_note));
  SendSignal(unmarked, SIGKILL);  // only control groups would find it
}

TEST(ShimTest, ATornLifecycleLineIsEndedAndTheAttemptStarts) {
  TestJob job({FakeJobPath()});
  ASSERT_OK(WriteFileAtomic(job.paths().lifecycle, "{\"event\":\"started\",\"att"));
  EXPECT_EQ(job.Run(), kShimDone);
  const Lifecycle all = job.ReadLifecycle();
  EXPECT_EQ(all.skipped_lines, 1);
  EXPECT_EQ(all.events.size(), 2u);
}

TEST(ShimTest, WithoutASpecNothingStarts) {
  TestJob job({FakeJobPath()});
  ASSERT_OK(WriteFileAtomic(job.paths().spec, "{"));
  EXPECT_EQ(job.Run(), kShimNotStarted);
  EXPECT_FALSE(PathExists(job.paths().lifecycle));
  EXPECT_THAT(job.ShimStderr(), HasSubstr("spec.json"));
}

// --- secrets ------------------------------------------------------------------------------------

TEST(ShimTest, TornSecretsStartNothing) {
  TestJob job({FakeJobPath()});
  EXPECT_EQ(job.Wait(job.Start(1, EncodeForShim({{"TOKEN", "v"}}, false))), kShimNoSecrets);
  EXPECT_EQ(job.Wait(job.Start(1, "")), kShimNoSecrets);
  EXPECT_FALSE(PathExists(job.paths().lifecycle));
  EXPECT_EQ(job.Output(), "");
}

TEST(ShimTest, ASecretIsInTheJobsEnvironmentAndNowhereElse) {
  const std::string canary = "canary-5d41402abc4b2a76";
  TestJob job(
      TestJob::Bash("[ \"$TOKEN\" = \"$(cat expected)\" ] && [ \"$GPUCTL_JOB_ID\" != x ] && "
                    "echo got it; read -r < \"$FIFO\" || true"));
  ASSERT_OK(WriteFileAtomic(JoinPath(job.paths().work, "expected"), canary));
  const std::string fifo = job.MakeFifo("gate");
  (*job.spec.mutable_env())["FIFO"] = fifo;
  (*job.spec.mutable_env())["TOKEN"] = "shadowed";
  const pid_t shim = job.Start(1, EncodeForShim({{"TOKEN", canary}, {"GPUCTL_JOB_ID", "x"}}));
  {
    const UniqueFd gate = job.Arrive(fifo);
    const std::string proc = absl::StrCat("/proc/", shim);
    EXPECT_THAT(*ReadFileToString(proc + "/cmdline"), Not(HasSubstr(canary)));
    EXPECT_THAT(*ReadFileToString(proc + "/environ"), Not(HasSubstr(canary)));
    // Read all of the shim's memory, as a core dump or a debugger does.
    const auto maps = ReadFileToString(proc + "/maps");
    ASSERT_OK(maps);
    const UniqueFd memory(open((proc + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(memory.valid());
    int64_t looked_at = 0;
    for (const absl::string_view line : absl::StrSplit(*maps, '\n', absl::SkipEmpty())) {
      const std::vector<std::string> range = absl::StrSplit(line.substr(0, line.find(' ')), '-');
      const off_t from = static_cast<off_t>(strtoull(range[0].c_str(), nullptr, 16));
      const off_t to = static_cast<off_t>(strtoull(range[1].c_str(), nullptr, 16));
      if (to - from > (off_t{1} << 30)) continue;  // a sanitizer's shadow, not memory in use
      std::string bytes(static_cast<size_t>(to - from), '\0');
      const ssize_t got = pread(memory.get(), bytes.data(), bytes.size(), from);
      if (got <= 0) continue;
      looked_at += got;
      EXPECT_FALSE(absl::StrContains(bytes, canary)) << line;
    }
    EXPECT_GT(looked_at, 1 << 20);
  }
  EXPECT_EQ(job.Wait(shim), kShimDone);
  EXPECT_EQ(job.Output(), "got it\n");
  for (const std::string& path :
       {job.paths().spec, job.paths().lifecycle, job.paths().metrics, job.paths().shim_stderr}) {
    EXPECT_THAT(ReadFileToString(path).value_or(""), Not(HasSubstr(canary))) << path;
  }
}

TEST(ShimTest, ACrashingShimLeavesNoCore) {
  TestJob job({FakeJobPath(), "--barrier", "start="});
  const std::string start = job.MakeFifo("start");
  *job.spec.mutable_argv(2) = absl::StrCat("start=", start);
  rlimit core{};
  getrlimit(RLIMIT_CORE, &core);
  rlimit unlimited = core;
  unlimited.rlim_cur = core.rlim_max;
  setrlimit(RLIMIT_CORE, &unlimited);
  const pid_t shim = job.Start(1, EncodeForShim({{"TOKEN", "canary"}}));
  setrlimit(RLIMIT_CORE, &core);
  const UniqueFd gate = job.Arrive(start);
  int status = 0;
  kill(shim, SIGQUIT);  // dumps core by default, and sanitizers leave it alone
  ASSERT_EQ(waitpid(shim, &status, 0), shim);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(WCOREDUMP(status));
}

// --- limits -------------------------------------------------------------------------------------

TEST(ShimTest, TheOutputLimitIsToldBeforeTheOldestBytesGo) {
  TestJob job({FakeJobPath(), "--spam", "1000000"});
  job.spec.set_output_segment_bytes(64 << 10);
  job.spec.set_output_limit_bytes(256 << 10);
  EXPECT_EQ(job.Run(), kShimDone);
  ASSERT_THAT(job.Events(Type::kCut), Not(IsEmpty()));
  const LifecycleEvent cut = job.Events(Type::kCut).back();
  StreamReader output(job.paths().output, OutputShape(job.spec));
  EXPECT_EQ(output.GetExtent()->first_offset, cut.first_offset);
  EXPECT_EQ(cut.first_offset % (64 << 10), 0);
  const std::string kept = job.Output();
  EXPECT_LE(kept.size(), size_t{256} << 10);
  EXPECT_GE(kept.size(), size_t{192} << 10);
  EXPECT_EQ(kept.find(absl::StrCat("spam ", cut.first_offset, " ")), 0u);
  EXPECT_EQ(job.Exited().output_size, 1000000 + 9);
}

}  // namespace
}  // namespace gpuctl
