// The shim on full or broken disks. Linux only: it needs mount(2) and strace.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/base/processes.h"
#include "agent/shim/attempt.h"
#include "agent/shim/test_job.h"
#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/process/process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Type = LifecycleEvent::Type;

// Runs a program to its end. Returns its exit status, or -1 when it could not be started.
int RunProgram(const std::vector<std::string>& argv) {
  SpawnOptions options;
  options.argv = argv;
  const absl::StatusOr<pid_t> pid = Spawn(options);
  int status = 0;
  if (!pid.ok() || waitpid(*pid, &status, 0) != *pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Expects on disk the bytes that the job wrote, in order, without the gaps that lifecycle names,
// from the first byte that was not cut.
void ExpectPrefixPlusToldDrops(const TestJob& job, const std::string& written) {
  const std::vector<LifecycleEvent> gaps = job.Events(Type::kDropped);
  StreamReader output(job.paths().output, OutputShape(job.spec));
  const Extent extent = *output.GetExtent();
  const std::string stored = job.Output();
  int64_t dropped = 0;
  int64_t position = extent.first_offset;
  const auto expect_until = [&](int64_t end) {
    if (end <= position) return;
    const auto at = [](int64_t offset) { return static_cast<size_t>(offset); };
    EXPECT_EQ(stored.substr(at(position - extent.first_offset), at(end - position)),
              written.substr(std::min(at(position + dropped), written.size()), at(end - position)));
    position = end;
  };
  for (const LifecycleEvent& gap : gaps) {
    expect_until(std::min(gap.output_size, extent.size));
    dropped += gap.dropped_bytes;
  }
  expect_until(extent.size);
  EXPECT_EQ(extent.size + dropped, static_cast<int64_t>(written.size()));
}

// --- a small real file system
// ---------------------------------------------------------------------

struct FileSystem {
  const char* name;
  bool (*mount)(const TempDir& dir, const std::string& target);
};

bool MountTmpfs(const TempDir&, const std::string& target) {
  return mount("tmpfs", target.c_str(), "tmpfs", 0, "size=4m") == 0;
}

bool MountExt4(const TempDir& dir, const std::string& target) {
  const std::string image = dir.Sub("image");
  const UniqueFd fd(open(image.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid() || ftruncate(fd.get(), 16 << 20) != 0) return false;
  return RunProgram({"/sbin/mkfs.ext4", "-q", "-F", "-m", "0", image}) == 0 &&
         RunProgram({"/bin/mount", "-o", "loop", image, target}) == 0;
}

void PrintTo(const FileSystem& file_system, std::ostream* out) { *out << file_system.name; }

class FullDiskTest : public ::testing::TestWithParam<FileSystem> {
 protected:
  void SetUp() override {
    ASSERT_OK(MakeDirectories(disk_));
    // The mounts are in our own namespace, so that nothing of them remains.
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        !GetParam().mount(dir_, disk_)) {
      FAIL() << "mounting a small " << GetParam().name << " takes root: " << strerror(errno)
             << "; ctest -E shim_fault leaves these tests out";
    }
  }
  void TearDown() override { umount2(disk_.c_str(), MNT_DETACH); }

  TempDir dir_;
  const std::string disk_ = dir_.Sub("disk");
};

INSTANTIATE_TEST_SUITE_P(FileSystems, FullDiskTest,
                         ::testing::Values(FileSystem{"tmpfs", MountTmpfs},
                                           FileSystem{"ext4", MountExt4}),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(FullDiskTest, AJobThatFillsTheDiskWithItsOutputEndsOnRecord) {
  TestJob job({FakeJobPath(), "--spam", "30000000", "--exit", "3"}, disk_);
  job.spec.set_output_segment_bytes(1 << 20);
  EXPECT_EQ(job.Run(), kShimDone);
  const LifecycleEvent exited = job.Exited();
  EXPECT_EQ(exited.exit_code, 3);
  int64_t dropped = 0;
  for (const LifecycleEvent& gap : job.Events(Type::kDropped)) dropped += gap.dropped_bytes;
  EXPECT_GT(dropped, 10'000'000);
  EXPECT_EQ(dropped + exited.output_size, 30'000'000 + 9);
  EXPECT_THAT(job.ShimStderr(), ::testing::AnyOf(HasSubstr("No space left"), IsEmpty()));
}

// Prints a line and waits until the shim has written it: the disk still has room for it.
const std::string kRecordBefore =
    "echo before; until grep -rqs before ../output*; do sleep 0.01; done; ";

TEST_P(FullDiskTest, AJobThatFillsTheDiskWithFilesEndsOnRecord) {
  TestJob job(TestJob::Bash(kRecordBefore + "head -c 100000000 /dev/zero > fill || true; "
                                            "for i in $(seq 10); do : > small$i || true; done; "
                                            "head -c 1000000 /dev/zero | tr '\\0' x; exit 4"),
              disk_);
  EXPECT_EQ(job.Run(), kShimDone);
  const LifecycleEvent exited = job.Exited();
  EXPECT_EQ(exited.exit_code, 4);
  ASSERT_THAT(job.Events(Type::kDropped), Not(IsEmpty()));
  EXPECT_THAT(job.Output(), ::testing::StartsWith("before\n"));
}

TEST_P(FullDiskTest, WhenSpaceReturnsTheGapIsToldAndTheOutputGoesOn) {
  // More than the pipe holds: the shim has met the full disk before there is room again.
  TestJob job(TestJob::Bash(kRecordBefore +
                            "head -c 100000000 /dev/zero > fill 2>&- || true; "
                            "head -c 3000000 /dev/zero | tr '\\0' x; echo {} > $GPUCTL_METRICS; "
                            "rm fill; until grep -q dropped ../lifecycle.jsonl; do echo after; "
                            "read -t 0.01 < \"$FIFO\" || true; done; echo last"),
              disk_);
  const std::string fifo = job.MakeFifo("never");
  const UniqueFd keep(open(fifo.c_str(), O_RDWR | O_CLOEXEC));
  (*job.spec.mutable_env())["FIFO"] = fifo;
  EXPECT_EQ(job.Run(), kShimDone);
  EXPECT_EQ(job.Exited().exit_code, 0);
  const std::string output = job.Output();
  EXPECT_THAT(output, ::testing::StartsWith("before\n"));
  EXPECT_THAT(output, ::testing::EndsWith("after\nlast\n"));
  ASSERT_THAT(job.Events(Type::kDropped), SizeIs(1));
  const LifecycleEvent gap = job.Events(Type::kDropped)[0];
  // Before the gap there are only x, after it only words.
  const size_t at = static_cast<size_t>(gap.output_size);
  EXPECT_THAT(output.substr(0, at), ::testing::MatchesRegex("before\nx*"));
  EXPECT_EQ(output.find('x', at), std::string::npos);
  EXPECT_THAT(job.MetricsText(), HasSubstr("{\"gpuctl\":"));
}

TEST_P(FullDiskTest, ADiskThatIsFullFromTheBeginningStartsNothing) {
  TestJob job({FakeJobPath()}, disk_);
  ASSERT_OK(WriteFileAtomic(job.paths().spec, FormatStoredSpec({"d", job.spec})));
  const std::string fill = JoinPath(disk_, "fill");
  const UniqueFd fd(open(fill.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const std::string block(4096, 'x');
  while (write(fd.get(), block.data(), block.size()) > 0) {
  }
  const int code = job.Run();
  if (code == kShimNotStarted) {
    EXPECT_THAT(job.Events(Type::kStarted), IsEmpty());
    EXPECT_EQ(job.Output(), "");
    EXPECT_EQ(truncate(fill.c_str(), 0), 0);
    EXPECT_EQ(job.Run(), kShimDone);
    EXPECT_EQ(job.Output(), "step 1/1\n");
  }
  // If the file system still had a block for the line, the job must have run.
  EXPECT_EQ(job.Exited().exit_code, 0);
}

// --- the n-th system call fails, for every n
// ------------------------------------------------------

struct Fault {
  const char* calls;
  const char* error;
  // The number of failures in a row; 0: always from then on.
  int times;
};

void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.calls << " " << fault.error << " x " << fault.times;
}

class EveryCallTest : public ::testing::TestWithParam<Fault> {};

// Sanitizers and the loader of a dynamic program need these calls themselves, so they fail only in
// the delivered programs.
#if defined(GPUCTL_ASAN) || defined(GPUCTL_TSAN)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Returns the faults. They last for ever only where the end can still be recorded: lifecycle needs
// pwrite64 and fdatasync, and the shim does not exit before `exited` is on the disk.
std::vector<Fault> Faults() {
  std::vector<Fault> faults = {
      {"pwrite64", "ENOSPC", 1},
      {"pwrite64", "EIO", 3},
      {"fdatasync,fsync", "EIO", 1},
      {"fdatasync,fsync", "EIO", 3},
      {"splice", "ENOSPC", 1},
      {"splice", "EIO", 0},
      {"splice", "EINVAL", 0},
      {"openat", "EMFILE", 1},
      {"unlink", "EIO", 1},
      {"unlink", "EIO", 0},
      {"fallocate", "EOPNOTSUPP", 0},
      {"ftruncate", "EIO", 0},
      {"fork,clone,vfork", "EAGAIN", 1},
      {"getdents64", "EIO", 0},
      {"fcntl", "EPERM", 0},
  };
  if (kSanitized) return faults;
  faults.push_back({"write", "ENOSPC", 1});
  faults.push_back({"openat", "EMFILE", 0});
  faults.push_back({"open,mkdir,mknod,mknodat,mkdirat", "ENOSPC", 0});
  faults.push_back({"pipe,pipe2", "EMFILE", 1});
  return faults;
}

INSTANTIATE_TEST_SUITE_P(Faults, EveryCallTest, ::testing::ValuesIn(Faults()));

TEST_P(EveryCallTest, OneStartOneEndAndNothingMissingUntold) {
  const Fault fault = GetParam();
  std::string written;
  for (int64_t offset = 0; offset < 20000; offset += 64) {
    std::string line = absl::StrCat("spam ", offset, " ");
    line.resize(63, '.');
    absl::StrAppend(&written, line, "\n");
  }
  written.resize(20000);
  for (int step = 1; step <= 4; ++step) absl::StrAppend(&written, "step ", step, "/4\n");
  bool reached = true;
  int n = 1;
  for (; reached; ++n) {
    SCOPED_TRACE(absl::StrCat("call number ", n));
    TestJob job({FakeJobPath(), "--spam", "20000", "--steps", "4"});
    job.spec.set_output_segment_bytes(4096);
    job.spec.set_output_limit_bytes(12288);
    TempDir dir;
    const std::string log = dir.Sub("strace");
    const std::string when =
        fault.times == 0 ? absl::StrCat(n, "+") : absl::StrCat(n, "..", n + fault.times - 1);
    // The leak check of a sanitized shim does not work under a tracer.
    const pid_t shim =
        job.Start(1, EncodeForShim({}),
                  {"strace", "-qq", "-E", "ASAN_OPTIONS=detect_leaks=0", "-o", log, "-e",
                   absl::StrCat("trace=", fault.calls), "-e",
                   absl::StrCat("inject=", fault.calls, ":error=", fault.error, ":when=", when)});
    const int code = job.Wait(shim);
    const auto trace = ReadFileToString(log);
    ASSERT_OK(trace) << "NOT TESTED: strace does not work here";
    reached = absl::StrContains(*trace, "INJECTED");
    const Lifecycle all = job.ReadLifecycle();
    EXPECT_EQ(all.skipped_lines, 0);
    if (code == kShimDone) {
      EXPECT_THAT(job.Events(Type::kStarted), SizeIs(1));
      const LifecycleEvent exited = job.Exited();
      if (exited.error.empty()) {
        EXPECT_EQ(exited.exit_code, 0);
        ExpectPrefixPlusToldDrops(job, written);
      } else {
        EXPECT_EQ(job.Output(), "");  // its start was not recorded, so it never ran
      }
    } else {
      EXPECT_TRUE(code == kShimNotStarted || code == kShimNoSecrets || code == kShimLockHeld)
          << code << job.ShimStderr();
      EXPECT_THAT(all.events, IsEmpty());
      EXPECT_EQ(job.Output(), "");
      // Another try must succeed.
      EXPECT_EQ(job.Run(), kShimDone);
      ExpectPrefixPlusToldDrops(job, written);
    }
    EXPECT_FALSE(job.HasProcesses());
    if (HasFailure()) return;
  }
  EXPECT_GT(n, 2) << "no call was reached: the test tests nothing";
}

// In exec a process has no environment for a moment, so nothing tells whose it is.
TEST(ProcessSearchTest, NoProcessIsMissedWhileItExecutes) {
  const std::string job_id = NewJobId();
  SpawnOptions options;
  options.argv = {"/bin/bash", "-c", "exec \"$BASH\" -c \"$0\" \"$0\"",
                  "exec \"$BASH\" -c \"$0\" \"$0\""};  // for ever
  options.env = {absl::StrCat("GPUCTL_JOB_ID=", job_id)};
  const absl::StatusOr<pid_t> pid = Spawn(options);
  ASSERT_OK(pid);
  ASSERT_TRUE(WaitUntil([&] { return JobProcesses(job_id).size() == 1; }));
  int missed = 0;
  for (int looks = 0; looks < 300; ++looks) {
    const ProcessSearch search = SearchJobProcesses(job_id);
    missed += search.found.empty() && !search.unsure ? 1 : 0;
  }
  EXPECT_EQ(missed, 0);
  kill(*pid, SIGKILL);
  EXPECT_EQ(waitpid(*pid, nullptr, 0), *pid);
  EXPECT_EQ(OrphanSearch(job_id, Clock::Real()).Look(), absl::Milliseconds(20));  // the first look
}

// As on a system without subreapers: the job's daemon belongs to init, and is found by its mark.
TEST(ShimOrphanTest, AJobEndsWithItsLastProcessThoughNobodyAdoptsIt) {
  TempDir dir;
  const std::string log = dir.Sub("strace");
  const std::vector<std::string> alone = {
      "strace", "-qq",         "-E", "ASAN_OPTIONS=detect_leaks=0", "-o", log,
      "-e",     "trace=prctl", "-e", "inject=prctl:error=EINVAL"};
  TestJob job(TestJob::Bash("setsid bash -c 'read -r < \"$FIFO\"; echo late' & disown"));
  const std::string fifo = job.MakeFifo("gate");
  (*job.spec.mutable_env())["FIFO"] = fifo;
  const pid_t shim = job.Start(1, EncodeForShim({}), alone);
  UniqueFd gate = job.Arrive(fifo);
  // The daemon lives on without its parent, and the end is not recorded before its own.
  ASSERT_TRUE(WaitUntil([&] { return JobProcesses(job.spec.job_id()).size() == 1; }));
  EXPECT_THAT(job.Events(Type::kExited), IsEmpty());
  ASSERT_OK(WriteAll(gate.get(), "go\n", "the gate"));
  gate = UniqueFd();
  EXPECT_EQ(job.Wait(shim), kShimDone);
  EXPECT_EQ(job.Output(), "late\n");
  EXPECT_EQ(job.Exited().exit_code, 0);
  const auto trace = ReadFileToString(log);
  ASSERT_OK(trace) << "NOT TESTED: strace does not work here";
  EXPECT_THAT(*trace, HasSubstr("PR_SET_CHILD_SUBREAPER, 1)"));
  EXPECT_FALSE(job.HasProcesses());
}

TEST(ShimOrphanTest, AStopReachesWhatNobodyAdopted) {
  TempDir dir;
  TestJob job(TestJob::Bash("setsid sleep 1000 & disown"));
  const pid_t shim =
      job.Start(1, EncodeForShim({}),
                {"strace", "-qq", "-E", "ASAN_OPTIONS=detect_leaks=0", "-o", dir.Sub("strace"),
                 "-e", "trace=prctl", "-e", "inject=prctl:error=EINVAL"});
  ASSERT_TRUE(WaitUntil([&] { return JobProcesses(job.spec.job_id()).size() == 1; }));
  job.Control("stop user");
  EXPECT_EQ(job.Wait(shim), kShimDone);
  EXPECT_FALSE(job.HasProcesses());
}

// The signal comes 50 ms after the list of processes; by then the job has made more of them.
// Without subreaper, the grace would pass before anything else reached those.
TEST(ShimOrphanTest, AStopReachesAChildThatIsMadeMeanwhile) {
  TempDir dir;
  const std::string log = dir.Sub("strace");
  TestJob job(TestJob::Bash("for i in {1..100}; do sleep 1000 & sleep 0.01; done; wait"));
  job.spec.set_grace_ms(600'000);
  const pid_t shim = job.Start(
      1, EncodeForShim({}),
      {"strace", "-qq", "-E", "ASAN_OPTIONS=detect_leaks=0", "-o", log, "-e",
       "trace=kill,pidfd_send_signal", "-e", "inject=kill,pidfd_send_signal:delay_enter=50000"});
  ASSERT_TRUE(WaitUntil([&] { return JobProcesses(job.spec.job_id()).size() >= 4; }));
  job.Control("stop user");
  EXPECT_EQ(job.Wait(shim), kShimDone);
  EXPECT_FALSE(job.HasProcesses());
  const auto trace = ReadFileToString(log);
  ASSERT_OK(trace) << "NOT TESTED: strace does not work here";
  EXPECT_THAT(*trace, AllOf(HasSubstr("SIGSTOP"), HasSubstr("SIGTERM"), Not(HasSubstr("SIGKILL"))));
}

// A reader between the two would take the end of an attempt for that of the job.
TEST(ShimWritesTest, TheEndOfAnAttemptComesWithItsRetry) {
  TestJob job(TestJob::Bash("exit 75"));
  job.spec.mutable_retry()->set_max_retries(1);
  job.spec.mutable_retry()->add_on("exit:75");
  TempDir dir;
  const std::string log = dir.Sub("strace");
  EXPECT_EQ(job.Wait(job.Start(1, EncodeForShim({}),
                               {"strace", "-qq", "-s", "2000", "-E", "ASAN_OPTIONS=detect_leaks=0",
                                "-o", log, "-e", "trace=write,pwrite64"})),
            kShimDone);
  EXPECT_THAT(job.Events(Type::kRetry), SizeIs(1));
  const auto trace = ReadFileToString(log);
  ASSERT_OK(trace) << "NOT TESTED: strace does not work here";
  int together = 0;
  const std::vector<absl::string_view> calls = absl::StrSplit(*trace, '\n');
  for (const absl::string_view call : calls) {
    const bool exited = absl::StrContains(call, "exited"), retry = absl::StrContains(call, "retry");
    EXPECT_EQ(exited, retry) << call;
    together += exited ? 1 : 0;
  }
  EXPECT_EQ(together, 1);
}

}  // namespace
}  // namespace gpuctl
