// Kills each process with kill -9 at each point of a job's life, once, and again during the
// recovery. Each cell reaches its point by a barrier; a cell that does not reach it fails.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "agent/bundle/bundle.h"
#include "agent/jobs/job_table.h"
#include "client/link/agent_calls.h"
#include "client/streams/mirror.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/job/checkpoint.h"
#include "common/process/process.h"
#include "tests/support/loopback_node.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

enum class Subject { kClient, kSsh, kBridge, kGuard, kServer, kShim, kJob };
enum class Point { kBeforeStart, kStarted, kMidOutput, kInCheckpoint, kAfterExited, kUpgrade };
constexpr const char* kSubjectNames[] = {"client", "ssh",  "bridge", "guard",
                                         "server", "shim", "job"};
constexpr const char* kPointNames[] = {"before start", "started",      "mid-output",
                                       "checkpoint",   "after exited", "upgrade"};

// The text of each cell in the table that is printed at the end.
std::map<std::tuple<int, int, bool>, std::string>& Outcomes() {
  static auto* const outcomes = new std::map<std::tuple<int, int, bool>, std::string>;
  return *outcomes;
}

std::string Proc(pid_t pid, const char* file) {
  return ReadFileToString(absl::StrCat("/proc/", pid, "/", file), 1 << 20).value_or("");
}

// Returns the fields of /proc/<pid>/stat after the name: state, parent, …; empty when the process
// is gone.
std::vector<std::string> Stat(pid_t pid) {
  const std::string stat = Proc(pid, "stat");
  const size_t end = stat.rfind(')');
  if (end == std::string::npos) return {};
  return absl::StrSplit(stat.substr(end + 2), ' ');
}

bool IsAlive(pid_t pid) {
  const std::vector<std::string> stat = Stat(pid);
  return !stat.empty() && stat[0] != "Z" && stat[0] != "X";
}

bool IsStopped(pid_t pid) {
  const std::vector<std::string> stat = Stat(pid);
  return !stat.empty() && (stat[0] == "T" || stat[0] == "t");
}

std::vector<pid_t> Children(pid_t parent) {
  std::vector<pid_t> children;
  const std::vector<std::string> names = ListDirectory("/proc").value();
  for (const std::string& name : names) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(name, &pid)) continue;
    const std::vector<std::string> stat = Stat(pid);
    if (stat.size() > 1 && stat[1] == absl::StrCat(parent) && IsAlive(pid)) children.push_back(pid);
  }
  return children;
}

// Returns the file of the program that a process runs.
std::string Exe(pid_t pid) {
  char path[4096];
  const ssize_t size = readlink(absl::StrCat("/proc/", pid, "/exe").c_str(), path, sizeof(path));
  return size < 0 ? "" : std::string(path, static_cast<size_t>(size));
}

class KillMatrixTest : public ::testing::TestWithParam<std::tuple<int, int, bool>> {
 protected:
  KillMatrixTest()
      : subject_(static_cast<Subject>(std::get<0>(GetParam()))),
        point_(static_cast<Point>(std::get<1>(GetParam()))),
        twice_(std::get<2>(GetParam())) {}

  void SetUp() override {
    ASSERT_EQ(mkfifo(Fifo().c_str(), 0600), 0);
    shim_path_ = absl::StrCat(BinDir(), "/gpuctl-shim");
    MakeRequest();
    if (NeedsHeldShim()) WriteShimWrapper();
    ASSERT_TRUE(WriteFileAtomic(node_.dir().Sub("request"), request_.SerializeAsString()).ok());
  }

  void TearDown() override {
    if (client_ > 0) {
      kill(client_, SIGKILL);
      waitpid(client_, nullptr, 0);
    }
    Outcomes()[GetParam()] = HasFailure() ? "FAILED" : outcome_;
  }

  // --- the cell's job and files

  std::string Fifo() const { return node_.dir().Sub("barrier"); }
  std::string RunsFile() const { return node_.dir().Sub("runs"); }
  std::string MirrorDir() const { return node_.dir().Sub("mirror"); }
  JobPaths Job() const { return node_.root().Job(request_.spec().job_id()); }
  bool IsJobSide() const { return subject_ == Subject::kShim || subject_ == Subject::kJob; }

  // True when the shim must be stopped at a point where no barrier can hold it: strace then sends
  // it SIGSTOP at one of its system calls.
  bool NeedsHeldShim() const {
    return IsJobSide() && (point_ == Point::kBeforeStart || point_ == Point::kAfterExited);
  }
  const char* HoldAt() const {
    if (point_ == Point::kAfterExited) return "ftruncate";  // `exited` is written, the lock held
    // Stop the shim before it takes the lock, or while it holds the child and `started` is not on
    // the disk yet.
    return subject_ == Subject::kShim ? "flock" : "fdatasync";
  }

  std::string HoldLog() const { return node_.dir().Sub("hold.log"); }

  // Under strace each system call is a short stop, and only strace's log tells which stop is the
  // lasting one. A SIGCONT before that stop would be lost.
  bool IsShimHeld() const {
    return absl::StrContains(ReadFileToString(HoldLog()).value_or(""), "stopped by SIGSTOP") &&
           !RealShims().empty();
  }

  void WriteShimWrapper() {
    const std::string script = absl::StrCat(
        "#!/bin/sh\n", "test -e ", node_.dir().Sub("held"), " && exec ", shim_path_,
        " \"$@\"\n: > ", node_.dir().Sub("held"),
        "\nexec strace -qq -E ASAN_OPTIONS=detect_leaks=0 -o ", HoldLog(), " -e trace=", HoldAt(),
        " -e inject=", HoldAt(), ":signal=SIGSTOP:when=1 ", shim_path_, " \"$@\"\n");
    shim_path_ = node_.dir().Write("gpuctl-shim", script, 0755);
  }

  void MakeRequest() {
    std::string at = "step:3=";
    if (point_ == Point::kStarted) at = "start=";
    if (point_ == Point::kInCheckpoint) at = "checkpoint:2=";
    if (point_ == Point::kAfterExited) at = "end=";
    request_ =
        node_.Request({TestProgram("fake_job"), "--once", RunsFile(), "--steps", "5", "--spam-step",
                       "70000", "--checkpoint-every", "2", "--barrier", absl::StrCat(at, Fifo())},
                      [this](gpuctl::v1::JobSpec& spec) {
                        if (!twice_ || !IsJobSide()) return;
                        spec.mutable_retry()->set_max_retries(3);
                        spec.mutable_retry()->add_on("lost");
                        spec.mutable_retry()->add_on("failed");
                        spec.mutable_retry()->set_backoff_ms(1);
                      });
  }

  // --- processes

  void StartClient() {
    SpawnOptions spawn;
    UniqueFd log(open(node_.dir().Sub("client.log").c_str(),
                      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    spawn.argv = {TestProgram("follow_client"),
                  node_.state_dir(),
                  node_.root_dir(),
                  absl::StrCat(BinDir(), "/gpuctl-agent"),
                  shim_path_,
                  node_.dir().Sub("request"),
                  MirrorDir(),
                  node_.dir().Sub("memory")};
    spawn.stderr_fd = log.get();
    client_ = Spawn(spawn).value();
  }

  std::vector<pid_t> SshdOfClient() const {
    std::vector<pid_t> found;
    for (const pid_t child : Children(client_)) {
      if (absl::EndsWith(Exe(child), "/sshd")) found.push_back(child);
    }
    return found;
  }

  std::vector<pid_t> RealShims() const {
    std::vector<pid_t> found;
    for (const pid_t pid : node_.Pids(request_.spec().job_id())) {
      if (absl::EndsWith(Exe(pid), "/gpuctl-shim")) found.push_back(pid);
    }
    return found;
  }

  std::vector<pid_t> Jobs() const {
    std::vector<pid_t> found;
    for (const pid_t shim : RealShims()) {
      for (const pid_t child : Children(shim)) found.push_back(child);
    }
    return found;
  }

  std::vector<pid_t> Subjects() const {
    switch (subject_) {
      case Subject::kClient:
        return {client_};
      case Subject::kSsh:
        return SshdOfClient();
      case Subject::kBridge:
        return node_.Pids("bridge");
      case Subject::kGuard:
        return node_.Pids("guard");
      case Subject::kServer:
        return node_.Pids("server");
      case Subject::kShim:
        return RealShims();
      case Subject::kJob:
        return Jobs();
    }
    return {};
  }

  // Stops `pids` and returns those that are alive. A process that may end by itself at any moment
  // must be stopped first, or it could be gone before the kill.
  static std::vector<pid_t> Hold(const std::vector<pid_t>& pids) {
    for (const pid_t pid : pids) kill(pid, SIGSTOP);
    Eventually(
        [&] {
          return std::all_of(pids.begin(), pids.end(),
                             [](pid_t pid) { return IsStopped(pid) || !IsAlive(pid); });
        },
        "the stop before the kill");
    std::vector<pid_t> held;
    std::copy_if(pids.begin(), pids.end(), std::back_inserter(held), IsAlive);
    return held;
  }

  // Waits for processes of the subject that are not in `but`, kills them with kill -9, and waits
  // until they are gone. Returns the killed ones.
  std::set<pid_t> Kill(const std::set<pid_t>& but = {}) {
    std::vector<pid_t> victims;
    Eventually(
        [&] {
          std::vector<pid_t> found = Subjects();
          // A process that only starts a guard, or finds one running, ends before it can be killed;
          // the real guard holds the lock.
          if (subject_ == Subject::kGuard && !IsLocked(node_.root().guard_lock).value()) {
            return false;
          }
          if (std::any_of(found.begin(), found.end(),
                          [&](pid_t pid) { return but.count(pid) > 0; })) {
            return false;
          }
          victims = Hold(found);
          return !victims.empty();
        },
        "something to kill");
    for (const pid_t pid : victims) kill(pid, SIGKILL);
    if (subject_ == Subject::kClient) {
      waitpid(client_, nullptr, 0);
      client_ = -1;
    }
    Eventually([&] { return std::none_of(victims.begin(), victims.end(), IsAlive); }, "the kill");
    return std::set<pid_t>(victims.begin(), victims.end());
  }

  // --- barriers

  // Waits until the job waits at its FIFO. The returned descriptor holds it there.
  UniqueFd JobAtBarrier() {
    int fd = -1;
    Eventually(
        [&] {
          fd = open(Fifo().c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
          return fd >= 0;
        },
        "the job at its barrier");
    return UniqueFd(fd);
  }

  bool MirrorHas(LifecycleEvent::Type type) const {
    const absl::StatusOr<Lifecycle> lifecycle = ReadMirrorLifecycle(MirrorDir());
    if (!lifecycle.ok()) return false;
    return std::any_of(lifecycle->events.begin(), lifecycle->events.end(),
                       [&](const LifecycleEvent& event) { return event.type == type; });
  }

  int CountOnNode(LifecycleEvent::Type type) const {
    const absl::StatusOr<Lifecycle> lifecycle = ReadLifecycle(Job());
    if (!lifecycle.ok()) return 0;
    return static_cast<int>(
        std::count_if(lifecycle->events.begin(), lifecycle->events.end(),
                      [&](const LifecycleEvent& event) { return event.type == type; }));
  }

  void WarmUpNode() {
    const auto links = MakeSshLinkFactory([this] {
      SshLinkOptions options = node_.Options();
      options.programs = ProgramsAt(absl::StrCat(BinDir(), "/gpuctl-agent"), shim_path_);
      return options;
    }());
    absl::StatusOr<std::unique_ptr<Link>> link = links->Connect();
    ASSERT_OK(link);
    grpc::ClientContext context;
    gpuctl::v1::HelloReply reply;
    ASSERT_TRUE((*link)->agent().stub->Hello(&context, {}, &reply).ok()) << (*link)->status();
  }

  // Brings all processes to the cell's point.
  void Reach() {
    if (point_ == Point::kBeforeStart && !IsJobSide()) {
      WarmUpNode();
      Eventually([&] { return node_.Pids("bridge").empty(); }, "the end of the first bridge");
      Freeze("server");
      StartClient();
      Eventually([&] { return !node_.Pids("bridge").empty(); }, "the client's bridge");
      ASSERT_FALSE(PathExists(Job().spec));
      return;
    }
    StartClient();
    if (NeedsHeldShim() && point_ == Point::kBeforeStart) {
      Eventually([&] { return IsShimHeld(); }, "a held shim");
      frozen_ = RealShims();
      return;
    }
    held_job_ = JobAtBarrier();
    Eventually([&] { return MirrorHas(LifecycleEvent::Type::kStarted); }, "`started` at home");
    if (point_ == Point::kMidOutput || point_ == Point::kUpgrade) {
      Eventually([&] { return OutputOnNode().size() > 140'000; }, "output on the node");
    }
    if (point_ == Point::kInCheckpoint) {
      ASSERT_TRUE(PathExists(JoinPath(Job().checkpoints, ".tmp-step-00000002")));
    }
    if (point_ == Point::kAfterExited) ReachAfterExited();
    if (point_ == Point::kUpgrade) ReachUpgrade();
  }

  void ReachAfterExited() {
    // Stop the client and the server, so that nothing leaves the node; then let the job end.
    frozen_ = node_.Pids("server");
    frozen_.push_back(client_);
    for (const pid_t pid : frozen_) kill(pid, SIGSTOP);
    Eventually([&] { return std::all_of(frozen_.begin(), frozen_.end(), IsStopped); },
               "client and server stopped");
    held_job_.reset();
    Eventually([&] { return CountOnNode(LifecycleEvent::Type::kExited) == 1; }, "`exited`");
    if (NeedsHeldShim()) {
      Eventually([&] { return IsShimHeld(); }, "a held shim");
      frozen_.push_back(RealShims()[0]);
    } else {
      Eventually([&] { return !IsLocked(Job().lock).value(); }, "the end of the shim");
    }
    ASSERT_FALSE(MirrorHas(LifecycleEvent::Type::kExited));
  }

  // Connects a second laptop with a newer build: bin/current changes while the stopped guard cannot
  // follow.
  void ReachUpgrade() {
    Freeze("guard");
    // The old server makes way for the new bundle within a second, and nothing replaces it before
    // the guard goes on: a stopped one is there to be killed, however long the rest takes.
    if (subject_ == Subject::kServer) Freeze("server");
    const std::string newer = node_.dir().Sub("newer-agent");
    std::string contents =
        ReadFileToString(absl::StrCat(BinDir(), "/gpuctl-agent"), 1 << 28).value();
    ASSERT_OK(WriteFileAtomic(newer, contents + "newer", 0755));
    SshLinkOptions options = node_.Options();
    options.programs = ProgramsAt(newer, shim_path_);
    options.target.name = "local again";
    newer_links_ = MakeSshLinkFactory(options);
    absl::StatusOr<std::unique_ptr<Link>> link = newer_links_->Connect();
    ASSERT_OK(link);
    Eventually(
        [&] {
          const std::string now = CurrentBundle(node_.root());
          return BundleVersion(now) > 0 && now != OldBundle();
        },
        "the new bundle");
  }

  std::string OldBundle() const {
    // The bundle that the frozen guard runs from.
    return frozen_.empty() ? "" : DirName(Exe(frozen_[0]));
  }

  void Freeze(const std::string& command) {
    const pid_t pid = node_.OnlyPid(command);
    ASSERT_GT(pid, 0);
    frozen_.push_back(pid);
    kill(pid, SIGSTOP);
    Eventually([&] { return IsStopped(pid); }, absl::StrCat("a stopped ", command));
  }

  void Thaw() {
    for (const pid_t pid : frozen_) {
      if (IsAlive(pid)) kill(pid, SIGCONT);
    }
    frozen_.clear();
  }

  // --- the end

  std::string OutputOnNode() const {
    return PathExists(Job().output) ? ReadStream(Job().output, StreamShape{kDefaultSegmentBytes})
                                    : "";
  }

  void FinishAndCheck() {
    if (client_ < 0) StartClient();
    int status = 0;
    ASSERT_TRUE(Eventually([&] { return waitpid(client_, &status, WNOHANG) == client_; },
                           "the client's end"));
    client_ = -1;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << status << "\n"
        << ReadFileToString(node_.dir().Sub("client.log")).value_or("");
    Eventually([&] { return !IsLocked(Job().lock).value(); }, "the end of the shim");
    CheckInvariants();
  }

  void CheckInvariants() {
    // A mirror holds the beginning of the node's files; here it holds all of them.
    EXPECT_EQ(ReadStream(MirrorPaths(MirrorDir()).output, StreamShape{kDefaultSegmentBytes}),
              OutputOnNode());
    for (const auto& [mirrored, original] :
         {std::pair(MirrorPaths(MirrorDir()).lifecycle, Job().lifecycle),
          std::pair(MirrorPaths(MirrorDir()).metrics, Job().metrics)}) {
      EXPECT_EQ(ReadFileToString(mirrored).value_or(""), ReadFileToString(original).value_or(""));
    }
    const Lifecycle lifecycle = ReadLifecycle(Job()).value();
    std::map<int, int> started;
    std::map<int, int> ended;
    for (const LifecycleEvent& event : lifecycle.events) {
      if (event.type == LifecycleEvent::Type::kStarted) ++started[event.attempt];
      if (event.type == LifecycleEvent::Type::kExited ||
          event.type == LifecycleEvent::Type::kLost) {
        ++ended[event.attempt];
      }
    }
    EXPECT_FALSE(started.empty());
    for (const auto& [attempt, count] : started) EXPECT_EQ(count, 1) << "attempt " << attempt;
    EXPECT_EQ(ended, started);
    CheckRuns(static_cast<int>(started.size()));
    CheckEnd(lifecycle, static_cast<int>(started.size()));
    // An incomplete checkpoint is never listed.
    const std::vector<CheckpointDir> checkpoints = ListCheckpoints(Job().checkpoints).value();
    for (const CheckpointDir& checkpoint : checkpoints) {
      EXPECT_OK(VerifyCheckpoint(checkpoint));
    }
    EXPECT_TRUE(Jobs().empty());
  }

  // Checks the job's own record of its runs: never two at once, never more than the lifecycle says.
  void CheckRuns(int attempts) {
    const std::string runs = ReadFileToString(RunsFile()).value_or("");
    EXPECT_FALSE(absl::StrContains(runs, "DOUBLE")) << runs;
    const auto count = std::count(runs.begin(), runs.end(), '\n');
    // A child that was killed while the shim held it, or just after, has `started` but never ran.
    const int never_ran = IsJobSide() && point_ == Point::kBeforeStart ? (twice_ ? 2 : 1) : 0;
    EXPECT_LE(count, attempts);
    EXPECT_GE(count, attempts - never_ran);
  }

  // Checks the job's end. A killed shim or job ends its attempt, and only a retry policy begins
  // another. The job does not notice the kill of anything else.
  void CheckEnd(const Lifecycle& lifecycle, int attempts) {
    const LifecycleEvent* last = LastStateEvent(lifecycle);
    ASSERT_NE(last, nullptr);
    outcome_ = absl::StrCat(last->type == LifecycleEvent::Type::kLost ? "lost"
                            : last->exit_code == 0                    ? "exit 0"
                                                                      : "signal 9",
                            attempts > 1 ? absl::StrCat(", attempt ", attempts) : "");
    const bool nothing_left = point_ == Point::kAfterExited;
    const bool not_begun = subject_ == Subject::kShim && point_ == Point::kBeforeStart;
    if (!IsJobSide() || nothing_left || (not_begun && !twice_)) {
      EXPECT_EQ(last->type, LifecycleEvent::Type::kExited);
      EXPECT_EQ(last->exit_code, 0);
      EXPECT_EQ(attempts, 1);
      return;
    }
    if (twice_) {
      EXPECT_EQ(last->exit_code, 0);
      EXPECT_GE(attempts, not_begun ? 1 : 3);
      return;
    }
    EXPECT_EQ(attempts, 1);
    if (subject_ == Subject::kShim) {
      EXPECT_EQ(last->type, LifecycleEvent::Type::kLost);
    } else {
      EXPECT_EQ(last->type, LifecycleEvent::Type::kExited);
      EXPECT_EQ(last->signal, SIGKILL);
    }
  }

  const Subject subject_;
  const Point point_;
  const bool twice_;
  LoopbackNode node_;
  std::string shim_path_;
  gpuctl::v1::StartJobRequest request_;
  pid_t client_ = -1;
  std::vector<pid_t> frozen_;
  UniqueFd held_job_;
  std::unique_ptr<LinkFactory> newer_links_;
  std::string outcome_;
  std::atomic<bool> release_{false};
};

TEST_P(KillMatrixTest, NothingIsLostAndNothingRunsTwice) {
  Reach();
  if (HasFatalFailure()) return;
  if (subject_ == Subject::kJob && point_ == Point::kAfterExited) {
    // `exited` is written after the last process of the job is gone, so there is nothing to kill.
    // This cell checks only that.
    EXPECT_TRUE(Jobs().empty());
    Thaw();
    FinishAndCheck();
    return;
  }
  const std::set<pid_t> first = Kill();
  // A new client, sshd or bridge may finish at once; a stopped server keeps it alive for the second
  // kill.
  std::vector<pid_t> server;
  if (twice_ &&
      (subject_ == Subject::kClient || subject_ == Subject::kSsh || subject_ == Subject::kBridge)) {
    server = node_.Pids("server");
    for (const pid_t pid : server) kill(pid, SIGSTOP);
  }
  Thaw();
  for (const pid_t pid : server) kill(pid, SIGSTOP);  // Thaw may have continued the same process
  const bool recovers = !(subject_ == Subject::kShim && point_ == Point::kAfterExited);
  if (twice_ && recovers) {
    if (subject_ == Subject::kClient) {
      StartClient();
      Eventually([&] { return !node_.Pids("bridge").empty() || !IsAlive(client_); },
                 "the second client's bridge");
    }
    if (IsJobSide() && point_ != Point::kBeforeStart) {
      // The retry has to come as far as the first attempt did. A process of the first attempt may
      // still wait at the FIFO until the new shim kills it, so the FIFO alone proves nothing.
      held_job_.reset();
      Eventually([&] { return CountOnNode(LifecycleEvent::Type::kStarted) == 2; },
                 "`started` of the retry");
      held_job_ = JobAtBarrier();
    }
    Kill(first);  // as soon as the first victim's successor is there
  }
  for (const pid_t pid : server) kill(pid, SIGCONT);
  held_job_.reset();
  // Let every later attempt through the barrier.
  release_ = true;
  std::thread gatekeeper([this] {
    while (release_) {
      UniqueFd(open(Fifo().c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
      poll(nullptr, 0, 5);
    }
  });
  FinishAndCheck();
  release_ = false;
  gatekeeper.join();
}

std::string CellName(const ::testing::TestParamInfo<std::tuple<int, int, bool>>& info) {
  std::string name =
      absl::StrCat(kSubjectNames[std::get<0>(info.param)], "_",
                   kPointNames[std::get<1>(info.param)], std::get<2>(info.param) ? "_twice" : "");
  for (char& c : name) {
    if (!isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, KillMatrixTest,
                         ::testing::Combine(::testing::Range(0, 7), ::testing::Range(0, 6),
                                            ::testing::Bool()),
                         CellName);

class TablePrinter : public ::testing::Environment {
 public:
  void TearDown() override {
    if (Outcomes().empty()) return;
    for (const bool twice : {false, true}) {
      printf("\nkill -9%s, then the end of the job as recorded:\n%-8s",
             twice ? ", and again during the recovery" : "", "");
      for (const char* point : kPointNames) printf(" %-20s", point);
      printf("\n");
      for (int subject = 0; subject < 7; ++subject) {
        printf("%-8s", kSubjectNames[subject]);
        for (int point = 0; point < 6; ++point) {
          const auto cell = Outcomes().find({subject, point, twice});
          printf(" %-20s", cell == Outcomes().end() ? "(not run)" : cell->second.c_str());
        }
        printf("\n");
      }
    }
  }
};

const auto* const kTable = ::testing::AddGlobalTestEnvironment(new TablePrinter);

}  // namespace
}  // namespace gpuctl
