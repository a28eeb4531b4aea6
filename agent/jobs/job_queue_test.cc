// The queue of JobTable, with a launcher that launches nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/base/gpu_grant.h"
#include "agent/base/node_root.h"
#include "agent/jobs/job_table.h"
#include "common/base/fake_clock.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/job/stream_file.h"
#include "common/transfer/error_detail.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using Type = LifecycleEvent::Type;

class Shims : public ShimLauncher {
 public:
  absl::Status Launch(const JobPaths& job, int attempt, const Secrets& secrets) override {
    launched.emplace_back(BaseName(job.dir), attempt);
    last_secrets = secrets;
    return absl::OkStatus();
  }
  void Reap() override {}
  bool IsStarting(const JobPaths& job) override { return starting.count(BaseName(job.dir)) > 0; }
  std::vector<std::pair<std::string, int>> launched;
  std::set<std::string> starting;
  Secrets last_secrets;
};

class JobQueueTest : public ::testing::Test {
 protected:
  JobQueueTest() : paths_(PrepareNodeRoot(dir_.Sub("node")).value()) { Restart(); }

  // A new server, as after the death of the last one.
  void Restart() {
    table_ = std::make_unique<JobTable>(paths_, "n-1", shims_, clock_, [this] { return gpus_; });
  }
  static gpuctl::v1::StartJobRequest Request(const std::string& id, std::optional<int> gpus,
                                             const std::string& secret = "") {
    gpuctl::v1::StartJobRequest request;
    request.mutable_spec()->set_job_id(id);
    request.mutable_spec()->add_argv("true");
    if (gpus.has_value()) request.mutable_spec()->set_gpus(*gpus);
    if (!secret.empty()) {
      request.mutable_spec()->add_secret_names("TOKEN");
      (*request.mutable_secrets())["TOKEN"] = secret;
    }
    request.set_spec_digest(SpecDigest(request.spec()));
    return request;
  }
  gpuctl::v1::Job Start(const std::string& id, std::optional<int> gpus,
                        const std::string& secret = "") {
    const absl::StatusOr<gpuctl::v1::Job> job = table_->Start(Request(id, gpus, secret));
    EXPECT_OK(job);
    return job.ok() ? *job : gpuctl::v1::Job();
  }
  gpuctl::v1::JobState StateOf(const std::string& id) { return DeriveJob(paths_.Job(id))->state(); }
  std::vector<std::string> GpusOf(const std::string& id) {
    const absl::StatusOr<GpuGrant> grant = ReadGpuGrant(paths_.Job(id));
    return grant.ok() ? grant->gpus : std::vector<std::string>();
  }
  // Does what the job's shim does first, if it was launched.
  void Begin(const std::string& id, int attempt = 1, bool old_shim = false) {
    LifecycleEvent event = Event(Type::kStarted, attempt);
    if (!old_shim) event.gpus = GpusOf(id);
    locks_[id] = TryLock(paths_.Job(id).lock).value();
    Append(id, event);
  }
  void End(const std::string& id, int attempt = 1) {
    LifecycleEvent event = Event(Type::kExited, attempt);
    event.exit_code = 0;
    Append(id, event);
    locks_.erase(id);
  }
  void Append(const std::string& id, const LifecycleEvent& event) {
    StreamWriter writer = StreamWriter::Open(paths_.Job(id).lifecycle, PlainShape()).value();
    ASSERT_OK(writer.Append(FormatLifecycleEvent(event)));
  }
  static LifecycleEvent Event(Type type, int attempt) {
    LifecycleEvent event;
    event.type = type;
    event.attempt = attempt;
    return event;
  }
  int LinesOf(const std::string& id, Type type) {
    int lines = 0;
    const Lifecycle lifecycle = ReadLifecycle(paths_.Job(id)).value();
    for (const LifecycleEvent& event : lifecycle.events) {
      lines += event.type == type ? 1 : 0;
    }
    return lines;
  }

  TempDir dir_;
  FakeClock clock_;
  Shims shims_;
  RootPaths paths_;
  NodeGpus gpus_{{"a", "b"}, true};
  std::map<std::string, UniqueFd> locks_;
  std::unique_ptr<JobTable> table_;
};

TEST_F(JobQueueTest, NobodyPassesWhileANewServerListsItsGpus) {
  for (const char* id : {"j-1", "j-2"}) {
    Start(id, 1);
    Begin(id);
  }
  Start("j-3", 2);
  Start("j-4", 1);
  End("j-1");
  End("j-2");
  gpus_ = {{"a"}, false};
  Restart();
  table_->Tend();
  EXPECT_THAT(GpusOf("j-4"), IsEmpty());
  gpus_ = {{"a", "b"}, true};
  table_->Tend();
  EXPECT_THAT(GpusOf("j-3"), ElementsAre("a", "b"));
  EXPECT_THAT(GpusOf("j-4"), IsEmpty());
}

TEST_F(JobQueueTest, ADriverThatNeverListsAllKeepsNobodyWaitingForLong) {
  for (const char* id : {"j-1", "j-2"}) {
    Start(id, 1);
    Begin(id);
  }
  Start("j-3", 2);
  Start("j-4", 1);
  End("j-1");
  gpus_.complete = false;
  Restart();
  table_->Tend();
  EXPECT_THAT(GpusOf("j-4"), IsEmpty());
  clock_.Advance(absl::Seconds(20));
  table_->Tend();
  EXPECT_THAT(GpusOf("j-4"), ElementsAre("a"));
}

TEST_F(JobQueueTest, AJobThatFitsStartsAtOnce) {
  Start("j-1", 1);
  EXPECT_THAT(shims_.launched, ElementsAre(Pair("j-1", 1)));
  EXPECT_THAT(GpusOf("j-1"), ElementsAre("a"));
  // Its GPU is taken before its shim has written anything.
  Start("j-2", 1);
  EXPECT_THAT(GpusOf("j-2"), ElementsAre("b"));
  EXPECT_EQ(Start("j-3", 1).state(), gpuctl::v1::JOB_STATE_QUEUED);
  EXPECT_EQ(table_->Slots()->free(), 0);
  EXPECT_EQ(table_->Slots()->total(), 2);
  EXPECT_EQ(table_->Slots()->queued_jobs(), 1);
}

TEST_F(JobQueueTest, AWaitingJobStartsWhenGpusAreFreeInItsTurn) {
  Start("j-1", 2);
  Begin("j-1");
  Start("j-9", 2);
  Start("j-2", 1);
  const gpuctl::v1::Job job = table_->List()[1];
  EXPECT_EQ(job.job_id(), "j-2");
  EXPECT_EQ(job.queue().place(), 2);
  EXPECT_EQ(job.queue().gpus(), 1);
  table_->Tend();
  EXPECT_THAT(shims_.launched, ElementsAre(Pair("j-1", 1)));
  End("j-1");
  table_->Tend();
  EXPECT_THAT(shims_.launched, ElementsAre(Pair("j-1", 1), Pair("j-9", 1)));
  EXPECT_EQ(LinesOf("j-9", Type::kQueued), 1);
}

TEST_F(JobQueueTest, TheOrderIsThatOfArrivalAlsoForTheNextServer) {
  Start("j-1", 2);
  Begin("j-1");
  for (const char* id : {"j-9", "j-5", "j-7"}) Start(id, 2);
  Restart();
  for (const char* id : {"j-9", "j-5", "j-7"}) {
    table_->Tend();
    EXPECT_THAT(GpusOf(id), IsEmpty());
    End(shims_.launched.back().first);
    table_->Tend();
    EXPECT_EQ(shims_.launched.back().first, id);
    Begin(id);
  }
}

TEST_F(JobQueueTest, ASecondServerLaunchesWithTheGpusOfTheFirst) {
  Start("j-1", 1);
  // Its shim is on its way when the server dies.
  Restart();
  Start("j-2", 1);
  EXPECT_THAT(GpusOf("j-2"), ElementsAre("b"));
  table_->Tend();
  EXPECT_THAT(shims_.launched, ElementsAre(Pair("j-1", 1), Pair("j-2", 1), Pair("j-1", 1)));
  EXPECT_THAT(GpusOf("j-1"), ElementsAre("a"));
}

TEST_F(JobQueueTest, AJobOfAnOlderShimHasAll) {
  Start("j-1", std::nullopt);
  Begin("j-1", 1, /*old_shim=*/true);
  const gpuctl::v1::Job job = Start("j-2", 1);
  EXPECT_EQ(job.state(), gpuctl::v1::JOB_STATE_QUEUED);
  EXPECT_EQ(job.queue().held_by(), "j-1");
  End("j-1");
  table_->Tend();
  EXPECT_THAT(GpusOf("j-2"), ElementsAre("a"));
}

TEST_F(JobQueueTest, AJobWithoutANumberNeverWaits) {
  Start("j-1", 2);
  Begin("j-1");
  Start("j-2", std::nullopt);
  Start("j-3", 0);
  EXPECT_THAT(shims_.launched, ElementsAre(Pair("j-1", 1), Pair("j-2", 1), Pair("j-3", 1)));
}

TEST_F(JobQueueTest, ALostAttemptKeepsItsGpusUntilItsProcessesAreGone) {
  Start("j-1", 2);
  Begin("j-1");
  locks_.clear();  // the shim is dead, and nobody has swept yet
  EXPECT_EQ(Start("j-2", 1).state(), gpuctl::v1::JOB_STATE_QUEUED);
  table_->Tend();  // sweeps, and writes `lost`
  table_->Tend();
  EXPECT_THAT(GpusOf("j-2"), ElementsAre("a"));
}

TEST_F(JobQueueTest, MoreThanThereAreIsRefused) {
  const absl::Status refused = table_->Start(Request("j-1", 3)).status();
  EXPECT_TRUE(absl::IsOutOfRange(refused)) << refused;
  EXPECT_EQ(DetailOf(refused).kind(), gpuctl::v1::ErrorDetail::KIND_TOO_FEW_GPUS);
  EXPECT_FALSE(PathExists(paths_.Job("j-1").dir));
  EXPECT_FALSE(table_->IsAccepting("j-1"));
  EXPECT_FALSE(table_->Start(Request("j-2", -1)).ok());
}

TEST_F(JobQueueTest, ADriverThatListsNothingRefusesAfterAWhile) {
  gpus_ = {};
  clock_.HoldSleeps();
  auto started =
      std::async(std::launch::async, [this] { return table_->Start(Request("j-1", 1)).status(); });
  clock_.BlockUntilWaiters(1);
  // A Watch waits for the job meanwhile.
  EXPECT_TRUE(table_->IsAccepting("j-1"));
  while (started.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
    clock_.Advance(absl::Seconds(1));
  }
  EXPECT_TRUE(absl::IsOutOfRange(started.get()));
  EXPECT_FALSE(table_->Slots().has_value());
}

TEST_F(JobQueueTest, ADriverThatBeginsToListIsWaitedFor) {
  gpus_ = {{"a"}, false};
  Start("j-1", 1);  // what is there may be given
  EXPECT_THAT(GpusOf("j-1"), ElementsAre("a"));
  clock_.HoldSleeps();
  auto started =
      std::async(std::launch::async, [this] { return table_->Start(Request("j-2", 2)).status(); });
  clock_.BlockUntilWaiters(1);
  gpus_ = {{"a", "b"}, true};
  clock_.Advance(absl::Seconds(1));
  EXPECT_OK(started.get());
  EXPECT_EQ(StateOf("j-2"), gpuctl::v1::JOB_STATE_QUEUED);
}

TEST_F(JobQueueTest, NothingStartsWhileTheGpusAreUnknown) {
  Start("j-1", 2);
  Begin("j-1");
  Start("j-2", 1);
  End("j-1");
  gpus_ = {};
  table_->Tend();
  EXPECT_EQ(StateOf("j-2"), gpuctl::v1::JOB_STATE_QUEUED);
  gpus_ = {{"a"}, true};
  table_->Tend();
  EXPECT_THAT(GpusOf("j-2"), ElementsAre("a"));
}

TEST_F(JobQueueTest, AStoppedOneLeavesTheQueue) {
  Start("j-1", 2);
  Begin("j-1");
  Start("j-2", 2);
  Start("j-3", 1);
  gpuctl::v1::StopJobRequest stop;
  stop.set_job_id("j-2");
  stop.set_reason("user");
  EXPECT_EQ(table_->Stop(stop)->state(), gpuctl::v1::JOB_STATE_FINISHED);
  EXPECT_EQ(table_->List()[2].queue().place(), 1);
  End("j-1");
  table_->Tend();
  EXPECT_THAT(GpusOf("j-2"), IsEmpty());
  EXPECT_THAT(GpusOf("j-3"), ElementsAre("a"));
}

TEST_F(JobQueueTest, OneThatTheGuardEndedLeavesTheQueue) {
  Start("j-1", 2);
  Begin("j-1");
  Start("j-2", 2);
  Start("j-3", 1);
  table_->Tend();
  Append("j-2", Event(Type::kExited, 1));
  table_->Tend();
  EXPECT_EQ(table_->List()[2].queue().place(), 1);
  // One whose end could not be written at once is ended later.
  ASSERT_OK(WriteFileAtomic(paths_.Job("j-3").stop, "user\n"));
  table_->Tend();
  EXPECT_EQ(StateOf("j-3"), gpuctl::v1::JOB_STATE_FINISHED);
}

TEST_F(JobQueueTest, SecretsWaitInMemory) {
  Start("j-1", 2);
  Begin("j-1");
  EXPECT_EQ(Start("j-2", 1, "s3cret").state(), gpuctl::v1::JOB_STATE_QUEUED);
  End("j-1");
  table_->Tend();
  EXPECT_EQ(shims_.launched.back().first, "j-2");
  EXPECT_THAT(shims_.last_secrets, ElementsAre(Pair("TOKEN", "s3cret")));
}

TEST_F(JobQueueTest, AfterARestartSecretsComeFromAClientAgain) {
  Start("j-1", 2);
  Begin("j-1");
  Start("j-2", 1, "s3cret");
  Start("j-3", 2);
  Restart();
  table_->Tend();
  EXPECT_TRUE(DeriveJob(paths_.Job("j-2"))->queue().needs_secrets());
  // Nobody waits for it.
  End("j-1");
  table_->Tend();
  table_->Tend();
  EXPECT_EQ(shims_.launched.back().first, "j-3");
  Begin("j-3");
  EXPECT_EQ(LinesOf("j-2", Type::kQueued), 2);
  // A client brings them: it has its place still.
  Start("j-4", 1);
  Start("j-2", 1, "s3cret");
  EXPECT_FALSE(DeriveJob(paths_.Job("j-2"))->queue().needs_secrets());
  EXPECT_EQ(table_->List()[1].queue().place(), 1);
  End("j-3");
  table_->Tend();
  EXPECT_THAT(GpusOf("j-2"), ElementsAre("a"));
  EXPECT_THAT(GpusOf("j-4"), ElementsAre("b"));
}

TEST_F(JobQueueTest, TheNextServerGetsTheSecretsOfTheLastOne) {
  Start("j-1", 2);
  Begin("j-1");
  Start("j-2", 1, "s3cret");
  std::map<std::string, Secrets> given = table_->GiveSecrets();
  given["j-unknown"] = {{"TOKEN", "x"}};
  given["../j-2"] = {{"TOKEN", "x"}};
  EXPECT_THAT(table_->GiveSecrets(), IsEmpty());
  Restart();
  table_->TakeSecrets(given);
  table_->Tend();
  EXPECT_FALSE(DeriveJob(paths_.Job("j-2"))->queue().needs_secrets());
  End("j-1");
  table_->Tend();
  EXPECT_EQ(shims_.launched.back().first, "j-2");
  EXPECT_THAT(shims_.last_secrets, ElementsAre(Pair("TOKEN", "s3cret")));
}

TEST_F(JobQueueTest, IncompleteSecretsAreNotTaken) {
  Start("j-1", 2);
  Begin("j-1");
  Start("j-2", 1, "s3cret");
  Restart();
  table_->TakeSecrets({{"j-2", {{"ANOTHER", "x"}}}});
  table_->Tend();
  EXPECT_TRUE(DeriveJob(paths_.Job("j-2"))->queue().needs_secrets());
}

TEST_F(JobQueueTest, AGrantWhoseSecretsAreGoneIsTakenBack) {
  Start("j-1", 1, "s3cret");
  Restart();
  table_->Tend();
  EXPECT_THAT(GpusOf("j-1"), IsEmpty());
  EXPECT_TRUE(DeriveJob(paths_.Job("j-1"))->queue().needs_secrets());
  Start("j-1", 1, "s3cret");
  EXPECT_THAT(shims_.launched, ElementsAre(Pair("j-1", 1), Pair("j-1", 1)));
}

TEST_F(JobQueueTest, AShimThatHoldsItsLockKeepsTheGrant) {
  Start("j-1", 1, "s3cret");
  const UniqueFd lock = TryLock(paths_.Job("j-1").lock).value();
  Restart();
  table_->Tend();
  EXPECT_THAT(GpusOf("j-1"), ElementsAre("a"));
}

TEST_F(JobQueueTest, ARetryWaitsForGpusToo) {
  gpuctl::v1::StartJobRequest request = Request("j-1", 1);
  request.mutable_spec()->mutable_retry()->set_max_retries(1);
  request.set_spec_digest(SpecDigest(request.spec()));
  ASSERT_OK(table_->Start(request));
  Begin("j-1");
  Start("j-2", 2);
  LifecycleEvent retry = Event(Type::kRetry, 2);
  Append("j-1", Event(Type::kLost, 1));
  Append("j-1", retry);
  locks_.clear();
  table_->Tend();
  EXPECT_THAT(GpusOf("j-2"), ElementsAre("a", "b"));  // it was there before the retry
  Begin("j-2");
  table_->Tend();
  EXPECT_EQ(StateOf("j-1"), gpuctl::v1::JOB_STATE_QUEUED);
  End("j-2");
  table_->Tend();
  EXPECT_EQ(shims_.launched.back(), std::make_pair(std::string("j-1"), 2));
}

TEST_F(JobQueueTest, TheWaitOfTheFirstIsMeasuredOverARestart) {
  Start("j-1", 1);
  Begin("j-1");
  Start("j-2", 2);
  clock_.Advance(absl::Minutes(9));
  Start("j-3", 1);
  EXPECT_THAT(GpusOf("j-3"), ElementsAre("b"));  // passes
  Begin("j-3");
  End("j-3");
  Restart();
  clock_.Advance(absl::Minutes(2));
  table_->Tend();
  EXPECT_EQ(Start("j-4", 1).state(), gpuctl::v1::JOB_STATE_QUEUED);
  table_->Tend();
  EXPECT_EQ(StateOf("j-4"), gpuctl::v1::JOB_STATE_QUEUED);
  End("j-1");
  table_->Tend();
  EXPECT_THAT(GpusOf("j-2"), ElementsAre("a", "b"));
}

}  // namespace
}  // namespace gpuctl
