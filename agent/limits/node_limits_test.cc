#include "agent/limits/node_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/limits/contact.h"
#include "agent/limits/limit_keeper.h"
#include "agent/limits/limits_report.h"
#include "agent/limits/node_limits_store.h"
#include "common/base/fake_clock.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/job/lifecycle.h"
#include "common/process/process.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = NodeAction::Kind;

constexpr absl::Duration kHour = absl::Hours(1);
constexpr absl::Duration kMinute = absl::Minutes(1);

// Returns limits of 2 $/h; at most 20 $, of which an hour of salvage takes 2; ten minutes idle;
// three days of lease.
gpuctl::v1::NodeLimits Limits() {
  gpuctl::v1::NodeLimits limits;
  limits.set_revision(1);
  limits.set_provider("vast");
  limits.set_instance_id("17");
  limits.set_release_base_url("https://api.test");
  limits.set_rate_usd_per_hour(2);
  limits.set_spent_before_usd(1);
  limits.set_cost_usd(20);
  limits.set_idle_s(600);
  limits.set_salvage_s(3600);
  limits.set_lease_s(72 * 3600);
  limits.set_self_release(true);
  return limits;
}

struct Case {
  const char* what;
  NodeFacts facts;
  Kind kind;
  const char* reason;
  absl::Duration in;
};

TEST(NextActionTest, Table) {
  const absl::Duration none = absl::ZeroDuration();
  const std::vector<Case> cases = {
      // 20 - 1 spent - 2 of salvage - 1/30 of grace = 16.97 $, at 2 $/h 8 h 29 min.
      {"a job has money left",
       {none, none, none, true, true},
       Kind::kStopJobs,
       "limit:cost",
       8 * kHour + 29 * kMinute},
      {"grace and salvage are left",
       {8 * kHour + 29 * kMinute, none, none, true, true},
       Kind::kStopJobs,
       "limit:cost",
       none},
      {"neither idle nor lease count while a job runs",
       {kHour, none, 100 * kHour, true, false},
       Kind::kStopJobs,
       "limit:cost",
       7 * kHour + 29 * kMinute},
      {"idle",
       {kHour, 3 * kMinute, 2 * kMinute, false, true},
       Kind::kRelease,
       "limit:idle",
       8 * kMinute},
      {"idle is over",
       {kHour, 30 * kMinute, 10 * kMinute, false, true},
       Kind::kRelease,
       "limit:idle",
       none},
      {"somebody is here",
       {kHour, 30 * kMinute, none, false, true},
       Kind::kRelease,
       "limit:idle",
       10 * kMinute},
      {"salvage keeps what is not home",
       {kHour, 30 * kMinute, 30 * kMinute, false, false},
       Kind::kRelease,
       "limit:salvage",
       30 * kMinute},
      {"salvage is over",
       {kHour, kHour, kHour, false, false},
       Kind::kRelease,
       "limit:salvage",
       none},
      {"a pull at the end of salvage",
       {2 * kHour, kHour, none, false, false},
       Kind::kRelease,
       "limit:salvage",
       10 * kMinute},
      {"the money ends before salvage",
       {9 * kHour + 20 * kMinute, kMinute, kMinute, false, false},
       Kind::kRelease,
       "limit:cost",
       10 * kMinute},
      {"the money is gone, whoever is here",
       {10 * kHour, kMinute, none, false, false},
       Kind::kRelease,
       "limit:cost",
       -30 * kMinute},
  };
  for (const Case& each : cases) {
    const NodeAction action = NextAction(Limits(), each.facts);
    EXPECT_EQ(action.kind, each.kind) << each.what;
    EXPECT_EQ(action.reason, each.reason) << each.what;
    if (each.in > none) {
      EXPECT_LT(absl::AbsDuration(action.in - each.in), absl::Seconds(1))
          << each.what << ": " << action.in;
    } else {
      EXPECT_LE(action.in, absl::Milliseconds(1)) << each.what;
    }
  }
}

TEST(NextActionTest, LeaseEndsWhatNoOtherLimitEnds) {
  auto limits = Limits();
  limits.set_cost_usd(0);
  limits.set_idle_s(0);
  limits.set_salvage_s(0);
  NodeFacts facts{kHour, 80 * kHour, 71 * kHour, false, false};
  EXPECT_EQ(NextAction(limits, facts).reason, "limit:lease");
  EXPECT_EQ(NextAction(limits, facts).in, kHour);
  limits.set_lease_s(0);
  EXPECT_EQ(NextAction(limits, facts).kind, Kind::kNone);
  facts.job_runs = true;
  EXPECT_EQ(NextAction(limits, facts).kind, Kind::kNone);
}

TEST(ElapsedTest, BootClockWithinABootWallAcross) {
  const TimeStamp from{"a", 1000, 50'000};
  EXPECT_EQ(Elapsed(from, {"a", 4000, 3'653'000}), absl::Seconds(3)) << "the wall clock jumped";
  EXPECT_EQ(Elapsed(from, {"a", 4000, -3'600'000}), absl::Seconds(3));
  EXPECT_EQ(Elapsed(from, {"b", 500, 80'000}), absl::Seconds(30));
  EXPECT_EQ(Elapsed(from, {"b", 500, 10'000}), absl::Milliseconds(500)) << "it went back";
}

TEST(TrafficTest, TheCountGoesOnOverBootsAndRestarts) {
  ClockNote first;
  first.at = {"a", 1000, 1000};
  CountTraffic(std::nullopt, NetworkCounters{500, 300}, first);
  EXPECT_EQ(first.traffic.received_bytes, 0) << "what was before the agent is not known";
  ClockNote second;
  second.at = {"a", 2000, 2000};
  CountTraffic(first, NetworkCounters{700, 310}, second);
  EXPECT_EQ(second.traffic.received_bytes, 200);
  EXPECT_EQ(second.traffic.sent_bytes, 10);
  ClockNote unread;
  unread.at = {"a", 2500, 2500};
  CountTraffic(second, std::nullopt, unread);
  ClockNote booted;
  booted.at = {"b", 10, 9000};
  CountTraffic(unread, NetworkCounters{900, 5}, booted);
  EXPECT_EQ(booted.traffic.received_bytes, 1100) << "the counters began at 0";
  EXPECT_EQ(booted.traffic.sent_bytes, 15);
  // A container that starts again has new counters, and the boot of its host.
  ClockNote restarted;
  restarted.at = {"b", 20, 9500};
  CountTraffic(booted, NetworkCounters{40, 6}, restarted);
  EXPECT_EQ(restarted.traffic.received_bytes, 1140);
  EXPECT_EQ(restarted.traffic.sent_bytes, 16);
}

TEST(TrafficTest, OnlyNewBytesCostMoney) {
  gpuctl::v1::NodeLimits limits = Limits();
  limits.set_upload_usd_per_gb(0.02);
  limits.set_download_usd_per_gb(0.5);
  limits.set_sent_before_bytes(1'000'000'000);
  limits.set_received_before_bytes(2'000'000'000);
  ClockNote note;
  note.traffic = {4'000'000'000, 11'000'000'000};
  EXPECT_NEAR(TrafficUsd(limits, note), 10 * 0.02 + 2 * 0.5, 1e-9);
  // Of 20 $ one was spent, an hour took 2, and grace and salvage need 2.03: 14.97 are left.
  NodeFacts facts{kHour, {}, {}, true, false, 0};
  const NodeAction without = NextAction(limits, facts);
  EXPECT_EQ(without.reason, "limit:cost");
  EXPECT_GT(without.in, 7 * kHour);
  facts.traffic_usd = 15;
  EXPECT_EQ(NextAction(limits, facts).kind, Kind::kStopJobs);
  EXPECT_LE(NextAction(limits, facts).in, absl::ZeroDuration());
  facts.job_runs = false;
  facts.traffic_usd = 17.5;
  EXPECT_EQ(NextAction(limits, facts).reason, "limit:cost");
  EXPECT_LE(NextAction(limits, facts).in, absl::ZeroDuration());
}

// A node's directory, its clock, and jobs made of files.
class NodeLimitsTest : public ::testing::Test {
 protected:
  ~NodeLimitsTest() override { unsetenv("GPUCTL_PROC"); }
  NodeLimitsTest() {
    // A person at a terminal of this machine is not on the node.
    setenv("GPUCTL_PROC", dir_.Sub("proc").c_str(), 1);
    EXPECT_OK(MakeDirectories(paths_.jobs));
    EXPECT_OK(MakeDirectories(DirName(paths_.log)));
  }
  void Set(const gpuctl::v1::NodeLimits& limits) {
    ASSERT_OK(StoreNodeLimits(paths_, limits, StampNow(boot_, clock_)));
  }
  JobPaths MakeJob(const std::string& id) {
    const JobPaths job = paths_.Job(id);
    EXPECT_OK(MakeDirectories(job.checkpoints));
    StoredSpec stored;
    stored.spec.set_job_id(id);
    EXPECT_OK(WriteFileAtomic(job.spec, FormatStoredSpec(stored)));
    return job;
  }
  // Pretends to be a shim: holds the lock and opens the FIFO.
  void Begin(const JobPaths& job) {
    lock_ = TryLock(job.lock).value();
    if (!PathExists(job.control)) {
      ASSERT_EQ(mkfifo(job.control.c_str(), 0600), 0);
    }
    control_.reset(open(job.control.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    Append(job, LifecycleEvent::Type::kStarted);
  }
  void End(const JobPaths& job) {
    Append(job, LifecycleEvent::Type::kExited);
    lock_.reset();
    control_.reset();
  }
  void Append(const JobPaths& job, LifecycleEvent::Type type) {
    LifecycleEvent event;
    event.type = type;
    event.attempt = 1;
    event.boot_id = boot_;
    event.exit_code = 0;
    event.time_ms = absl::ToUnixMillis(clock_.Now());
    const std::string before = ReadFileToString(job.lifecycle).value_or("");
    EXPECT_OK(WriteFileAtomic(job.lifecycle, before + FormatLifecycleEvent(event)));
  }
  std::string Told() {
    char buffer[256];
    const ssize_t got = read(control_.get(), buffer, sizeof(buffer));
    return got <= 0 ? "" : std::string(buffer, static_cast<size_t>(got));
  }
  void MakeCheckpoint(const JobPaths& job, int64_t step) {
    const std::string dir =
        absl::StrCat("node/jobs/", BaseName(job.dir), "/ckpt/step-0000000", step);
    dir_.Write(absl::StrCat(dir, "/manifest.json"),
               absl::StrCat("{\"format\":1,\"step\":", step, ",\"files\":[]}"));
  }
  absl::Status Home(const std::string& job_id, std::optional<int64_t> step, bool all) {
    gpuctl::v1::MarkHomeRequest request;
    gpuctl::v1::JobHome& home = *request.add_jobs();
    home.set_job_id(job_id);
    if (step.has_value()) home.set_checkpoint_step(*step);
    home.set_all_home(all);
    return MarkHome(paths_, request);
  }
  // Runs `times` of the guard's seconds.
  void Tick(LimitKeeper& keeper, int times = 1, absl::Duration step = absl::Seconds(1)) {
    for (int i = 0; i < times; ++i) {
      clock_.Advance(step);
      keeper.Enforce();
    }
  }

  TempDir dir_;
  RootPaths paths_{dir_.Sub("node")};
  std::string boot_ = "boot-1";
  FakeClock clock_;
  UniqueFd lock_, control_;
};

TEST_F(NodeLimitsTest, ANewerRevisionHoldsAndTheNodeIsClaimed) {
  auto limits = Limits();
  Set(limits);
  EXPECT_TRUE(PathExists(paths_.claimed));
  limits.set_cost_usd(1);
  Set(limits);
  EXPECT_EQ(ReadNodeLimits(paths_)->limits.cost_usd(), 20) << "the same revision changes nothing";
  limits.set_revision(2);
  Set(limits);
  EXPECT_EQ(ReadNodeLimits(paths_)->limits.cost_usd(), 1);
  limits.set_cost_usd(-1);
  EXPECT_THAT(StoreNodeLimits(paths_, limits, {}), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(NodeLimitsTest, WithoutLimitsNothingIsDone) {
  LimitKeeper keeper(paths_, clock_, boot_);
  Tick(keeper, 10, 100 * kHour);
  EXPECT_EQ(keeper.release_due(), "");
  EXPECT_TRUE(ReadClockNote(paths_).has_value());
}

TEST_F(NodeLimitsTest, CostStopsTheJobAndThenTheNode) {
  const JobPaths job = MakeJob("j1");
  Begin(job);
  Set(Limits());
  LimitKeeper keeper(paths_, clock_, boot_);
  Tick(keeper, 8, kHour);
  EXPECT_EQ(Told(), "");
  Tick(keeper, 1, 29 * kMinute);
  Tick(keeper);
  EXPECT_EQ(Told(), "stop limit:cost\n");
  EXPECT_EQ(keeper.release_due(), "") << "before the job has ended";
  Tick(keeper);
  EXPECT_EQ(Told(), "") << "told twice";
  End(job);
  Tick(keeper);
  EXPECT_EQ(keeper.release_due(), "") << "salvage has begun";
  Tick(keeper, 1, kHour);
  EXPECT_EQ(keeper.release_due(), "limit:salvage");
}

TEST_F(NodeLimitsTest, AWaitingRetryIsEndedByCost) {
  const JobPaths job = MakeJob("j1");
  Append(job, LifecycleEvent::Type::kExited);
  Append(job, LifecycleEvent::Type::kRetry);
  Set(Limits());
  LimitKeeper keeper(paths_, clock_, boot_);
  Tick(keeper, 1, 9 * kHour);
  const Lifecycle lifecycle = ParseLifecycle(ReadFileToString(job.lifecycle).value());
  EXPECT_EQ(lifecycle.events.back().type, LifecycleEvent::Type::kExited);
  EXPECT_EQ(lifecycle.events.back().reason, "limit:cost");
}

TEST_F(NodeLimitsTest, WallClockJumpsChangeNothing) {
  const JobPaths job = MakeJob("j1");
  Begin(job);
  Set(Limits());
  LimitKeeper keeper(paths_, clock_, boot_);
  for (const absl::Duration jump : {kHour, -2 * kHour, kHour}) {
    Tick(keeper, 4, 30 * kMinute);
    clock_.JumpWall(jump);
  }
  const auto state = DescribeNodeLimits(paths_, boot_, clock_);
  ASSERT_TRUE(state.has_value());
  EXPECT_NEAR(state->spent_usd(), 1 + 2 * 6, 0.001);
  Tick(keeper, 1, 2 * kHour);
  EXPECT_EQ(Told(), "");
  Tick(keeper, 1, kHour);
  EXPECT_EQ(Told(), "stop limit:cost\n");
}

// Suspend moves the boot clock and the wall clock, and the guard does not run meanwhile.
TEST_F(NodeLimitsTest, SuspendIsPaidFor) {
  const JobPaths job = MakeJob("j1");
  Begin(job);
  Set(Limits());
  LimitKeeper keeper(paths_, clock_, boot_);
  Tick(keeper);
  Tick(keeper, 1, 9 * kHour);
  EXPECT_EQ(Told(), "stop limit:cost\n");
}

TEST_F(NodeLimitsTest, ARebootGoesOnWhereItWas) {
  Set(Limits());
  MakeJob("j1");
  Append(paths_.Job("j1"), LifecycleEvent::Type::kStarted);
  Append(paths_.Job("j1"), LifecycleEvent::Type::kExited);
  {
    LimitKeeper keeper(paths_, clock_, boot_);
    Tick(keeper, 5, kMinute);
  }
  // The machine was off for 20 minutes; the new boot's clock begins near zero.
  FakeClock rebooted(clock_.Now() + absl::Minutes(20));
  LimitKeeper keeper(paths_, rebooted, "boot-2");
  keeper.Enforce();
  const ClockNote note = ReadClockNote(paths_).value();
  EXPECT_EQ(note.billed, absl::Minutes(25));
  EXPECT_EQ(note.no_job, absl::Minutes(25));
  EXPECT_EQ(keeper.release_due(), "");
  rebooted.Advance(absl::Minutes(35));
  keeper.Enforce();
  EXPECT_EQ(keeper.release_due(), "limit:salvage");
}

TEST_F(NodeLimitsTest, AKilledGuardsSuccessorGoesOn) {
  Set(Limits());
  for (int i = 0; i < 10; ++i) {
    LimitKeeper keeper(paths_, clock_, boot_);
    Tick(keeper, 1, kMinute);
    EXPECT_EQ(keeper.release_due(), i < 9 ? "" : "limit:idle") << i;
  }
}

TEST_F(NodeLimitsTest, IdleCountsFromTheLastContact) {
  Set(Limits());
  LimitKeeper keeper(paths_, clock_, boot_);
  Tick(keeper, 1, 5 * kMinute);
  {
    const Contact contact(paths_, clock_);
    EXPECT_TRUE(InContact(paths_));
    Tick(keeper, 1, kHour);
    EXPECT_EQ(keeper.release_due(), "");
  }
  EXPECT_FALSE(InContact(paths_));
  Tick(keeper, 9, kMinute);
  EXPECT_EQ(keeper.release_due(), "");
  Tick(keeper, 2, kMinute);
  EXPECT_EQ(keeper.release_due(), "limit:idle");
}

// reap asks a process that counts on from the note, which is written once a minute otherwise.
TEST_F(NodeLimitsTest, AJobThatBeganAndEndedBetweenTwoLooksIsNoted) {
  Set(Limits());
  LimitKeeper keeper(paths_, clock_, boot_);
  Tick(keeper, 2);
  const JobPaths job = MakeJob("0123456789ab");
  Begin(job);
  End(job);
  Tick(keeper);
  const std::optional<ClockNote> note = ReadClockNote(paths_);
  ASSERT_TRUE(note.has_value());
  EXPECT_EQ(note->jobs_over, 1);
  EXPECT_EQ(note->no_job, absl::ZeroDuration());
}

// The guard looks once a second, and reap asks at any moment.
TEST_F(NodeLimitsTest, TwoWhoLookAreNoContact) {
  { const Contact contact(paths_, clock_); }  // makes the file
  TempDir proc;
  for (int pid = 100; pid < 300; ++pid) proc.Write(absl::StrCat(pid, "/cmdline"), "sleep");
  setenv("GPUCTL_PROC", proc.path().c_str(), 1);
  std::atomic<int> seen = 0;
  const auto look = [&] {
    for (int i = 0; i < 100; ++i) seen += InContact(paths_) ? 1 : 0;
  };
  std::thread other(look);
  look();
  other.join();
  EXPECT_EQ(seen, 0);
}

// A contact between two looks leaves its stamp.
TEST_F(NodeLimitsTest, AShortContactIsNotMissed) {
  boot_ = BootId();
  Set(Limits());
  LimitKeeper keeper(paths_, clock_, boot_);
  Tick(keeper, 1, 9 * kMinute);
  { const Contact contact(paths_, clock_); }
  Tick(keeper, 1, 9 * kMinute);
  EXPECT_EQ(keeper.release_due(), "");
  Tick(keeper, 1, 2 * kMinute);
  EXPECT_EQ(keeper.release_due(), "limit:idle");
}

TEST_F(NodeLimitsTest, WhatIsHomeEndsSalvage) {
  auto limits = Limits();
  limits.set_checkpoints_only(true);
  Set(limits);
  const JobPaths job = MakeJob("j1");
  Begin(job);
  MakeCheckpoint(job, 1);
  MakeCheckpoint(job, 2);
  EXPECT_OK(Home("j1", 1, true));
  EXPECT_FALSE(ReadHome(paths_).at("j1").all_home()) << "believed of a job that runs";
  LimitKeeper keeper(paths_, clock_, boot_);
  Tick(keeper);
  End(job);
  Tick(keeper);
  Tick(keeper, 1, 20 * kMinute);
  EXPECT_EQ(keeper.release_due(), "") << "step 2 is not home";
  { const Contact contact(paths_, clock_); }
  EXPECT_OK(Home("j1", 2, false));
  EXPECT_OK(Home("j1", 1, false));
  Tick(keeper);
  EXPECT_EQ(keeper.release_due(), "limit:idle");
  EXPECT_THAT(Home("j2", 1, false), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Home("../j", 1, false), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(NodeLimitsTest, AJobThatWaitsForGpusKeepsTheMachine) {
  Set(Limits());
  const JobPaths job = MakeJob("j1");
  StoredSpec stored = ReadStoredSpec(job).value();
  stored.spec.set_gpus(2);
  stored.spec.add_secret_names("TOKEN");
  ASSERT_OK(WriteFileAtomic(job.spec, FormatStoredSpec(stored)));
  LifecycleEvent queued;
  queued.type = LifecycleEvent::Type::kQueued;
  queued.attempt = 1;
  queued.ticket = 1;
  ASSERT_OK(WriteFileAtomic(job.lifecycle, FormatLifecycleEvent(queued)));
  LimitKeeper keeper(paths_, clock_, boot_);
  Tick(keeper, 2, 20 * kMinute);
  EXPECT_EQ(keeper.release_due(), "");
  EXPECT_THAT(TakeCensus(paths_).live, ElementsAre("j1"));
  // A client may never come with the secrets again.
  LifecycleEvent lost = queued;
  lost.reason = kSecretsReason;
  ASSERT_OK(
      WriteFileAtomic(job.lifecycle, FormatLifecycleEvent(queued) + FormatLifecycleEvent(lost)));
  EXPECT_THAT(TakeCensus(paths_).live, IsEmpty());
  EXPECT_THAT(TakeCensus(paths_).with_results, IsEmpty());
  Tick(keeper, 2, 20 * kMinute);
  EXPECT_EQ(keeper.release_due(), "limit:idle");
}

TEST_F(NodeLimitsTest, OtherResultsAreHomeWhenAllAre) {
  const JobPaths job = MakeJob("j1");
  Append(job, LifecycleEvent::Type::kStarted);
  Append(job, LifecycleEvent::Type::kExited);
  EXPECT_THAT(TakeCensus(paths_).with_results, ElementsAre("j1"));
  EXPECT_THAT(TakeCensus(paths_).live, IsEmpty());
  EXPECT_FALSE(ResultsHome(paths_, Limits(), {"j1"}));
  EXPECT_OK(Home("j1", std::nullopt, true));
  EXPECT_TRUE(ResultsHome(paths_, Limits(), {"j1"}));
}

TEST_F(NodeLimitsTest, OutputThatNobodyHasFetchedIsAResult) {
  auto limits = Limits();
  limits.set_checkpoints_only(true);
  Set(limits);
  const JobPaths job = MakeJob("j1");
  Append(job, LifecycleEvent::Type::kStarted);
  { const Contact before_its_end(paths_, clock_); }
  clock_.Advance(absl::Minutes(5));
  Append(job, LifecycleEvent::Type::kExited);
  EXPECT_FALSE(ResultsHome(paths_, limits, {"j1"}));
  {
    const Contact contact(paths_, clock_);
    EXPECT_TRUE(ResultsHome(paths_, limits, {"j1"}));
  }
  EXPECT_TRUE(ResultsHome(paths_, limits, {"j1"}));
  clock_.Advance(absl::Hours(1));
  EXPECT_TRUE(ResultsHome(paths_, limits, {"j1"}));
}

TEST_F(NodeLimitsTest, SaysWhenItEndsAndWhy) {
  EXPECT_FALSE(DescribeNodeLimits(paths_, boot_, clock_).has_value());
  auto limits = Limits();
  limits.set_provider("lambda");
  Set(limits);
  const auto state = DescribeNodeLimits(paths_, boot_, clock_).value();
  EXPECT_EQ(state.next(), gpuctl::v1::NodeLimitsState::NEXT_RELEASE);
  EXPECT_EQ(state.reason(), "limit:idle");
  EXPECT_NEAR(static_cast<double>(state.next_ms() - absl::ToUnixMillis(clock_.Now())), 600'000, 2);
  EXPECT_FALSE(state.can_release());
  EXPECT_EQ(state.cannot_release_why(), "lambda gives a machine no key to end itself with");
}

TEST(ContactTest, ATerminalOfSshIsAContact) {
  TempDir proc;
  proc.Write("17/cmdline", "sshd: root@notty");
  proc.Write("self/cmdline", "sshd: root@pts/1");
  EXPECT_FALSE(HasTerminalSession(proc.path()));
  proc.Write("18/cmdline", "sshd-session: root@pts/0");
  EXPECT_TRUE(HasTerminalSession(proc.path()));
}

TEST_F(NodeLimitsTest, TrafficIsCountedAndReported) {
  const std::string net = dir_.Sub("net");
  setenv("GPUCTL_NET_DEV", net.c_str(), 1);
  const auto counters = [&net](int64_t received, int64_t sent) {
    ASSERT_OK(WriteFileAtomic(
        net, absl::StrCat("h\nh\n lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n eth0: ", received,
                          " 1 0 0 0 0 0 0 ", sent, " 1 0 0 0 0 0 0\n")));
  };
  counters(1000, 100);
  LimitKeeper keeper(paths_, clock_, boot_);
  keeper.Enforce();
  counters(1500, 100);
  gpuctl::v1::NodeLimits limits = Limits();
  limits.set_upload_usd_per_gb(1);
  Set(limits);
  const JobPaths job = MakeJob("0123456789ab");
  Begin(job);
  clock_.Advance(absl::Seconds(2));
  keeper.Enforce();
  // 5 GB sent for 5 $; the note on disk is from before.
  counters(1500, 5'000'000'100);
  gpuctl::v1::NodeLimitsState state = DescribeNodeLimits(paths_, boot_, clock_).value();
  EXPECT_EQ(state.sent_bytes(), 5'000'000'000);
  EXPECT_EQ(state.received_bytes(), 500) << "since the agent first ran";
  EXPECT_NEAR(state.spent_usd(), 1 + 5 + 2.0 * 2 / 3600, 1e-6);
  // 17 GB more leave nothing for the job.
  counters(1500, 22'000'000'100);
  clock_.Advance(absl::Seconds(2));
  keeper.Enforce();
  char said[64] = {};
  ASSERT_GT(read(control_.get(), said, sizeof(said) - 1), 0);
  EXPECT_EQ(std::string(said), "stop limit:cost\n");
  End(job);
  unsetenv("GPUCTL_NET_DEV");
}

}  // namespace
}  // namespace gpuctl
