#include "agent/jobs/job_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/base/node_root.h"
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
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using Type = LifecycleEvent::Type;

// A launcher that records requests and launches nothing.
class RecordingLauncher : public ShimLauncher {
 public:
  absl::Status Launch(const JobPaths& job, int attempt, const Secrets& secrets) override {
    launched.emplace_back(BaseName(job.dir), attempt);
    secret_count = secrets.size();
    return absl::OkStatus();
  }
  void Reap() override {}
  bool IsStarting(const JobPaths& /*job*/) override { return starting; }
  bool starting = false;
  std::vector<std::pair<std::string, int>> launched;
  size_t secret_count = 0;
};

class JobTableTest : public ::testing::Test {
 protected:
  JobTableTest()
      : paths_(PrepareNodeRoot(dir_.Sub("node")).value()),
        table_(paths_, "n-1", launcher_, clock_) {}

  gpuctl::v1::StartJobRequest Request() {
    gpuctl::v1::StartJobRequest request;
    request.mutable_spec()->set_job_id("j-1");
    request.mutable_spec()->add_argv("true");
    request.set_spec_digest(SpecDigest(request.spec()));
    return request;
  }
  static gpuctl::v1::StopJobRequest StopRequest(const std::string& job_id) {
    gpuctl::v1::StopJobRequest request;
    request.set_job_id(job_id);
    request.set_reason("user");
    return request;
  }
  JobPaths Job() const { return paths_.Job("j-1"); }
  // Writes a lifecycle line as a shim would.
  void Append(LifecycleEvent event) {
    StreamWriter writer = StreamWriter::Open(Job().lifecycle, PlainShape()).value();
    ASSERT_OK(writer.Append(FormatLifecycleEvent(event)));
  }
  static LifecycleEvent Event(Type type, int attempt) {
    LifecycleEvent event;
    event.type = type;
    event.attempt = attempt;
    return event;
  }

  // Makes a job that has lost its shim and will be retried after a minute.
  void LoseTheFirstAttempt() {
    auto request = Request();
    request.mutable_spec()->mutable_retry()->set_max_retries(1);
    request.mutable_spec()->mutable_retry()->add_on("lost");
    request.mutable_spec()->mutable_retry()->set_backoff_ms(60'000);
    request.set_spec_digest(SpecDigest(request.spec()));
    ASSERT_OK(table_.Start(request));
    launcher_.launched.clear();
    Append(Event(Type::kStarted, 1));
    table_.Tend();
  }

  TempDir dir_;
  FakeClock clock_;
  RecordingLauncher launcher_;
  RootPaths paths_;
  JobTable table_;
};

TEST_F(JobTableTest, AJobThatFindsNoRoomIsRefusedWithTheKind) {
  file_ops::SetFaultHook(
      [](file_ops::Op op, const std::string&) { return op == file_ops::Op::kWrite ? ENOSPC : 0; });
  const absl::Status full = table_.Start(Request()).status();
  file_ops::SetFaultHook(nullptr);
  EXPECT_EQ(DetailToSend(full).kind(), gpuctl::v1::ErrorDetail::KIND_DISK_FULL) << full;
  auto elsewhere = Request();
  elsewhere.set_expected_node_id("n-2");
  EXPECT_EQ(DetailToSend(table_.Start(elsewhere).status()).kind(),
            gpuctl::v1::ErrorDetail::KIND_NODE_CHANGED);
}

TEST_F(JobTableTest, StateFollowsFromLockAndLastLine) {
  using gpuctl::v1::JobState;
  ASSERT_OK(table_.Start(Request()));
  auto state = [&] { return DeriveJob(Job())->state(); };
  EXPECT_EQ(state(), JobState::JOB_STATE_PENDING);
  {
    const auto lock = TryLock(Job().lock);
    ASSERT_OK(lock);
    EXPECT_EQ(state(), JobState::JOB_STATE_STARTING);
    Append(Event(Type::kStarted, 1));
    EXPECT_EQ(state(), JobState::JOB_STATE_RUNNING);
    LifecycleEvent exited = Event(Type::kExited, 1);
    exited.exit_code = 3;
    Append(exited);
    EXPECT_EQ(state(), JobState::JOB_STATE_FINISHING);
  }
  EXPECT_EQ(state(), JobState::JOB_STATE_FINISHED);
  EXPECT_EQ(DeriveJob(Job())->exit_code(), 3);
  Append(Event(Type::kRetry, 2));
  EXPECT_EQ(state(), JobState::JOB_STATE_RETRY_WAIT);
}

TEST_F(JobTableTest, AShimThatDiedIsRecordedOnceAndNotStartedAgain) {
  ASSERT_OK(table_.Start(Request()));
  launcher_.launched.clear();
  Append(Event(Type::kStarted, 1));
  for (int i = 0; i < 5; ++i) {
    clock_.Advance(absl::Seconds(10));
    table_.Tend();
  }
  const Lifecycle lifecycle = ReadLifecycle(Job()).value();
  ASSERT_THAT(lifecycle.events, SizeIs(2));
  EXPECT_EQ(lifecycle.events[1].type, Type::kLost);
  EXPECT_THAT(launcher_.launched, IsEmpty());
}

TEST_F(JobTableTest, ARetryWaitsForItsTime) {
  LoseTheFirstAttempt();
  table_.Tend();
  EXPECT_THAT(launcher_.launched, IsEmpty());
  clock_.Advance(absl::Seconds(61));
  table_.Tend();
  EXPECT_THAT(launcher_.launched, testing::ElementsAre(std::pair<std::string, int>("j-1", 2)));
}

TEST_F(JobTableTest, ARetryDoesNotWaitForAClockThatWasSetBack) {
  LoseTheFirstAttempt();
  clock_.JumpWall(-absl::Hours(5));
  table_.Tend();
  clock_.Advance(absl::Seconds(59));
  table_.Tend();
  EXPECT_THAT(launcher_.launched, IsEmpty());
  clock_.Advance(absl::Seconds(1));
  table_.Tend();
  EXPECT_THAT(launcher_.launched, testing::ElementsAre(std::pair<std::string, int>("j-1", 2)));
}

TEST_F(JobTableTest, StoppingWhatHasNotBegunEndsIt) {
  ASSERT_OK(table_.Start(Request()));
  ASSERT_OK(table_.Stop(StopRequest("j-1")));
  EXPECT_EQ(DeriveJob(Job())->state(), gpuctl::v1::JOB_STATE_FINISHED);
  launcher_.launched.clear();
  ASSERT_OK(table_.Start(Request()));
  clock_.Advance(absl::Minutes(1));
  table_.Tend();
  EXPECT_THAT(launcher_.launched, IsEmpty());
}

TEST_F(JobTableTest, ATombstoneForbidsANewStart) {
  dir_.Write("node/tombstones/j-1", "");
  EXPECT_THAT(table_.Start(Request()), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(launcher_.launched, IsEmpty());
}

TEST_F(JobTableTest, AJobThatWasStoppedBeforeItCameIsRefused) {
  EXPECT_THAT(table_.Stop(StopRequest("j-1")), StatusIs(absl::StatusCode::kNotFound));
  const absl::Status late = table_.Start(Request()).status();
  EXPECT_EQ(DetailToSend(late).kind(), gpuctl::v1::ErrorDetail::KIND_SWEPT) << late;
  EXPECT_THAT(launcher_.launched, IsEmpty());
}

// Holds the first rename to `path` until Go.
class HeldRename {
 public:
  explicit HeldRename(std::string path) {
    file_ops::SetFaultHook([this, path = std::move(path)](file_ops::Op op, const std::string& at) {
      if (op == file_ops::Op::kRename && at == path && !held_.exchange(true))
        go_.get_future().wait();
      return 0;
    });
  }
  ~HeldRename() { file_ops::SetFaultHook(nullptr); }
  void WaitUntilHeld() const {
    while (!held_) std::this_thread::yield();
  }
  void Go() { go_.set_value(); }

 private:
  std::atomic<bool> held_ = false;
  std::promise<void> go_;
};

TEST_F(JobTableTest, OthersDoNotWaitForACopy) {
  HeldRename copy(Job().dir + ".gpuctl-new/work");
  absl::StatusOr<gpuctl::v1::Job> first;
  std::thread starting([&] { first = table_.Start(Request()); });
  copy.WaitUntilHeld();
  EXPECT_TRUE(table_.IsAccepting("j-1"));
  table_.Tend();
  EXPECT_THAT(table_.List(), IsEmpty());
  auto other = Request();
  other.mutable_spec()->set_job_id("j-2");
  other.set_spec_digest(SpecDigest(other.spec()));
  EXPECT_OK(table_.Start(other));
  copy.Go();
  starting.join();
  EXPECT_OK(first);
  EXPECT_FALSE(table_.IsAccepting("j-1"));
  EXPECT_THAT(table_.List(), SizeIs(2));
}

TEST_F(JobTableTest, AJobThatIsStoppedWhileItsContentIsCopiedNeverBegins) {
  HeldRename copy(Job().dir + ".gpuctl-new/work");
  absl::StatusOr<gpuctl::v1::Job> job;
  std::thread starting([&] { job = table_.Start(Request()); });
  copy.WaitUntilHeld();
  EXPECT_THAT(table_.Stop(StopRequest("j-1")), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_FALSE(table_.IsAccepting("j-1"));
  copy.Go();
  starting.join();
  EXPECT_EQ(DetailToSend(job.status()).kind(), gpuctl::v1::ErrorDetail::KIND_SWEPT) << job.status();
  EXPECT_THAT(launcher_.launched, IsEmpty());
  table_.Tend();
  EXPECT_THAT(ListDirectory(paths_.jobs).value(), IsEmpty());
}

TEST_F(JobTableTest, DirectoriesOfOthersAreLeftAlone) {
  ASSERT_OK(table_.Start(Request()));
  const auto lock = TryLock(Job().lock);
  ASSERT_OK(lock);
  Append(Event(Type::kStarted, 1));
  dir_.Write("node/jobs/j-1/ckpt/step-1/model", "weights");
  // A copy has a free lock, so it looks like a job that lost its shim.
  for (const char* name : {"j-copy", "j-1.bak"}) {
    dir_.Write(absl::StrCat("node/jobs/", name, "/spec.json"),
               ReadFileToString(Job().spec).value());
    dir_.Write(absl::StrCat("node/jobs/", name, "/lifecycle.jsonl"),
               ReadFileToString(Job().lifecycle).value());
  }
  dir_.Write("node/jobs/notes/todo", "mine");
  dir_.Write("node/jobs/j-dead.gpuctl-new/work/a", "left by a server that died");
  for (int i = 0; i < 3; ++i) {
    table_.Tend();
    clock_.Advance(absl::Seconds(5));
  }
  EXPECT_THAT(table_.List(), SizeIs(1));
  EXPECT_THAT(ReadLifecycle(paths_.Job("j-copy"))->events, SizeIs(1));
  EXPECT_TRUE(PathExists(dir_.Sub("node/jobs/notes/todo")));
  EXPECT_FALSE(PathExists(dir_.Sub("node/jobs/j-dead.gpuctl-new")));
  // Its spec.json is gone, its checkpoints stay, and no other job takes the place.
  unlink(Job().spec.c_str());
  table_.Tend();
  EXPECT_TRUE(PathExists(Job().checkpoints + "/step-1/model"));
  EXPECT_THAT(table_.Start(Request()), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_TRUE(PathExists(Job().checkpoints + "/step-1/model"));
}

TEST_F(JobTableTest, AStopThatComesTooLateForTheShimForbidsTheRetry) {
  auto request = Request();
  request.mutable_spec()->mutable_retry()->set_max_retries(3);
  request.mutable_spec()->mutable_retry()->add_on("failed");
  request.set_spec_digest(SpecDigest(request.spec()));
  ASSERT_OK(table_.Start(request));
  {
    const auto lock = TryLock(Job().lock);
    ASSERT_OK(lock);
    Append(Event(Type::kStarted, 1));
    // The shim is past its last look at this FIFO.
    ASSERT_EQ(mkfifo(Job().control.c_str(), 0600), 0);
    const UniqueFd reader(open(Job().control.c_str(), O_RDONLY | O_NONBLOCK));
    ASSERT_OK(table_.Stop(StopRequest("j-1")));
    LifecycleEvent exited = Event(Type::kExited, 1);
    exited.exit_code = 1;
    Append(exited);
    Append(Event(Type::kRetry, 2));
  }
  launcher_.launched.clear();
  table_.Tend();
  clock_.Advance(absl::Minutes(1));
  table_.Tend();
  EXPECT_THAT(launcher_.launched, IsEmpty());
  const Lifecycle lifecycle = ReadLifecycle(Job()).value();
  EXPECT_EQ(LastStateEvent(lifecycle)->type, Type::kExited);
  EXPECT_EQ(LastStateEvent(lifecycle)->reason, "user");
}

TEST_F(JobTableTest, AShimThatCannotStartEndsTheAttemptWithItsWords) {
  ASSERT_OK(table_.Start(Request()));
  dir_.Write("node/jobs/j-1/shim.stderr", "shim: one\nshim: open metrics: not a FIFO\n");
  for (int i = 0; i < 30; ++i) {
    clock_.Advance(absl::Seconds(1));
    table_.Tend();
  }
  EXPECT_THAT(launcher_.launched, SizeIs(5));
  const Lifecycle lifecycle = ReadLifecycle(Job()).value();
  ASSERT_THAT(lifecycle.events, SizeIs(1));
  EXPECT_EQ(lifecycle.events[0].type, Type::kExited);
  EXPECT_EQ(lifecycle.events[0].error,
            "the node could not start it: shim: open metrics: not a FIFO");
}

TEST_F(JobTableTest, ASlowShimIsWaitedFor) {
  ASSERT_OK(table_.Start(Request()));
  launcher_.starting = true;
  for (int i = 0; i < 60; ++i) {
    clock_.Advance(absl::Seconds(1));
    table_.Tend();
  }
  EXPECT_THAT(launcher_.launched, SizeIs(1));
  EXPECT_EQ(DeriveJob(Job())->state(), gpuctl::v1::JOB_STATE_PENDING);
  launcher_.starting = false;
  table_.Tend();
  EXPECT_THAT(launcher_.launched, SizeIs(2));
}

TEST_F(JobTableTest, AJobWithSecretsEndsWhenItsShimCannotStart) {
  auto request = Request();
  request.mutable_spec()->add_secret_names("KEY");
  request.set_spec_digest(SpecDigest(request.spec()));
  (*request.mutable_secrets())["KEY"] = "value";
  ASSERT_OK(table_.Start(request));
  clock_.Advance(absl::Seconds(5));
  table_.Tend();
  EXPECT_EQ(DeriveJob(Job())->state(), gpuctl::v1::JOB_STATE_PENDING);
  clock_.Advance(absl::Seconds(20));
  table_.Tend();
  EXPECT_EQ(DeriveJob(Job())->state(), gpuctl::v1::JOB_STATE_FINISHED);
  EXPECT_THAT(launcher_.launched, SizeIs(1));
}

TEST_F(JobTableTest, ListsOfLiveJobsLeaveOutThoseThatAreOver) {
  auto request = Request();
  for (const char* id : {"j-1", "j-2", "j-3", "j-4"}) {
    request.mutable_spec()->set_job_id(id);
    request.set_spec_digest(SpecDigest(request.spec()));
    ASSERT_OK(table_.Start(request));
  }
  const auto ids = [](const std::vector<gpuctl::v1::Job>& jobs) {
    std::vector<std::string> found;
    for (const gpuctl::v1::Job& job : jobs) found.push_back(job.job_id());
    return found;
  };
  EXPECT_THAT(table_.Stop(StopRequest("j-1")), IsOk());
  EXPECT_THAT(table_.Stop(StopRequest("j-3")), IsOk());
  for (const bool known : {false, true}) {
    if (known) table_.Tend();
    EXPECT_THAT(ids(table_.ListLive({})), UnorderedElementsAre("j-2", "j-4"));
    EXPECT_THAT(ids(table_.ListLive({"j-3", "j-9"})), UnorderedElementsAre("j-2", "j-3", "j-4"));
    EXPECT_THAT(ids(table_.ListAfter("", 2)), ElementsAre("j-1", "j-2"));
    EXPECT_THAT(ids(table_.ListAfter("j-2", 5)), ElementsAre("j-3", "j-4"));
  }
  EXPECT_THAT(ids(table_.ListWithin(1 << 20)), ElementsAre("j-2", "j-4", "j-1", "j-3"));
  const size_t room = 2 * (table_.ListLive({})[0].ByteSizeLong() + 8);
  EXPECT_THAT(ids(table_.ListWithin(room)), ElementsAre("j-2", "j-4"));
}

TEST_F(JobTableTest, AnotherNodesJobIsRefused) {
  auto request = Request();
  request.set_expected_node_id("n-2");
  EXPECT_THAT(table_.Start(request), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_FALSE(PathExists(Job().dir));
}

TEST_F(JobTableTest, AStopThatIsMeantForAnotherNodeLeavesNothing) {
  gpuctl::v1::StopJobRequest stop = StopRequest("j-1");
  stop.set_expected_node_id("n-2");
  EXPECT_THAT(table_.Stop(stop), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_OK(table_.Start(Request()));
}

TEST_F(JobTableTest, ATimeIsSetForAJobThatIsNotOver) {
  gpuctl::v1::SetJobTimeRequest set;
  set.set_job_id("j-1");
  set.set_time_s(7200);
  EXPECT_THAT(table_.SetTime(set), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK(table_.Start(Request()));
  const gpuctl::v1::JobSpec spec = ReadStoredSpec(Job())->spec;
  const absl::Duration before = TimeLimitOf(Job(), spec);
  for (const int64_t wrong : {int64_t{0}, int64_t{-5}}) {
    set.set_time_s(wrong);
    EXPECT_THAT(table_.SetTime(set), StatusIs(absl::StatusCode::kInvalidArgument));
  }
  set.set_time_s(7200);
  set.set_expected_node_id("n-2");
  EXPECT_THAT(table_.SetTime(set), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(TimeLimitOf(Job(), spec), before);
  set.clear_expected_node_id();
  ASSERT_OK(table_.SetTime(set));
  EXPECT_EQ(TimeLimitOf(Job(), spec), absl::Hours(2));
  // A file that was damaged is no limit of its own.
  ASSERT_OK(WriteFileAtomic(Job().time_limit, "7200x"));
  EXPECT_EQ(TimeLimitOf(Job(), spec), before);
  ASSERT_OK(WriteFileAtomic(Job().stop, "user\n"));
  EXPECT_THAT(table_.SetTime(set), StatusIs(absl::StatusCode::kFailedPrecondition));
}

// The n-th file operation of accepting a job fails. Then spec.json is whole or missing, nothing is
// launched without it, and the same request succeeds when it is sent again.
class JobTableFaultTest : public JobTableTest, public ::testing::WithParamInterface<bool> {};

TEST_P(JobTableFaultTest, ASpecIsWholeOrAbsent) {
  const bool for_ever = GetParam();
  bool untouched = false;
  int n = 1;
  for (; !untouched && n < 200; ++n) {
    ASSERT_OK(RemoveTree(Job().dir));
    launcher_.launched.clear();
    int seen = 0;
    file_ops::SetFaultHook([&](file_ops::Op, const std::string&) {
      ++seen;
      return seen == n || (for_ever && seen > n) ? EIO : 0;
    });
    const auto first = table_.Start(Request());
    file_ops::SetFaultHook(nullptr);
    untouched = first.ok() && seen < n;
    const absl::StatusOr<StoredSpec> stored = ReadStoredSpec(Job());
    ASSERT_TRUE(stored.ok() || absl::IsNotFound(stored.status())) << n << stored.status();
    if (!stored.ok()) {
      ASSERT_THAT(launcher_.launched, IsEmpty()) << n;
    }
    ASSERT_OK(table_.Start(Request())) << n;
    ASSERT_FALSE(launcher_.launched.empty()) << n;
    ASSERT_EQ(ReadStoredSpec(Job())->spec_digest, Request().spec_digest());
  }
  EXPECT_TRUE(untouched);
  EXPECT_GT(n, 8) << "hardly an operation was made to fail";
}

INSTANTIATE_TEST_SUITE_P(OnceAndForEver, JobTableFaultTest, ::testing::Bool());

}  // namespace
}  // namespace gpuctl
