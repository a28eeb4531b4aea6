#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/base/held_root.h"
#include "agent/base/node_root.h"
#include "agent/base/time_stamp.h"
#include "agent/hold/kept_layout.h"
#include "agent/hold/results_copy.h"
#include "agent/limits/node_limits_store.h"
#include "agent/restart/restart_kit.h"
#include "agent/restart/start_again.h"
#include "common/base/fake_clock.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/job/lifecycle.h"
#include "common/job/stream_file.h"
#include "common/release/release_route.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Type = LifecycleEvent::Type;

// An allocation's first root, and the directory of its results.
class RestartTest : public ::testing::Test {
 protected:
  RestartTest()
      : from_(PrepareNodeRoot(dir_.Sub("17-0")).value()),
        copy_(dir_.Sub("shared/17-0")),
        kit_(dir_.Sub("bundle"), [this](const std::string& job, bool again) {
          said_.push_back(absl::StrCat(job, again ? " again" : " no more"));
          return slurm_;
        }) {
    for (const char* file : {"gpuctl-shim", "version", "api_level"}) {
      dir_.Write(absl::StrCat("bundle/", file), "1\n");
    }
    dir_.Write("bundle/gpuctl-agent", "#!/bin/sh\n", 0755);
    EXPECT_OK(MakeDirectories(copy_.jobs));
    EXPECT_OK(MakeDirectories(JoinPath(copy_.root, kKeptTmp)));
    dir_.Write("shared/17-0/node_id", "n-1\n");
    spec_.set_job_id("j-1");
    spec_.add_argv("true");
    spec_.mutable_retry()->set_max_retries(1);
    spec_.mutable_retry()->add_on("preempted");
    Accept();
  }
  void Accept(const std::string& job = "j-1") {
    StoredSpec stored;
    stored.spec = spec_;
    stored.spec.set_job_id(job);
    stored.spec_digest = SpecDigest(stored.spec);
    dir_.Write(absl::StrCat("17-0/jobs/", job, "/spec.json"), FormatStoredSpec(stored));
  }
  // Makes another job that runs, and has printed and saved something.
  void AddRunning(const std::string& job) {
    Accept(job);
    Append(Type::kStarted, 1, job);
    Print(job);
    dir_.Write(absl::StrCat("17-0/jobs/", job, "/ckpt/notes.txt"), "saved");
  }
  void Print(const std::string& job) {
    StreamWriter output = StreamWriter::Open(from_.Job(job).output, OutputShape(spec_)).value();
    ASSERT_OK(output.Append("line 1\n"));
  }
  void Append(Type type, int attempt = 1, const std::string& job = "j-1") {
    LifecycleEvent event;
    event.type = type;
    event.attempt = attempt;
    event.time_ms = absl::ToUnixMillis(clock_.Now());
    event.output_size =
        StreamReader(from_.Job(job).output, OutputShape(spec_)).GetExtent().value().size;
    if (type == Type::kExited) event.exit_code = 0;
    StreamWriter writer = StreamWriter::Open(from_.Job(job).lifecycle, PlainShape()).value();
    ASSERT_OK(writer.Append(FormatLifecycleEvent(event)));
  }
  absl::Status Keep() { return kit_.Keep(from_, dir_.Sub("shared")); }
  // Copies what the keeper copies.
  absl::Status Copy() {
    StreamsCopy streams(from_, copy_);
    FilesCopy files(from_, copy_, clock_);
    RETURN_IF_ERROR(streams.Pass(true));
    return files.Pass(true);
  }
  // The same, and makes the next root of it.
  absl::Status StartNext(int restart = 1) {
    RETURN_IF_ERROR(Copy());
    return Start(restart);
  }
  absl::Status Start(int restart = 1) {
    return StartAgain(Next(restart), dir_.Sub("shared"), clock_);
  }
  RootPaths Next(int restart = 1) { return RootPaths(dir_.Sub(absl::StrCat("17-", restart))); }
  Lifecycle LifecycleThere(const std::string& job = "j-1") {
    return ReadLifecycle(Next().Job(job)).value();
  }
  // The words of a job's end in the next root; "" when it goes on there.
  std::string WordsThere(const std::string& job) {
    const Lifecycle there = LifecycleThere(job);
    return IsOver(there) ? LastStateEvent(there)->reason : "";
  }

  TempDir dir_;
  FakeClock clock_;
  RootPaths from_;
  RootPaths copy_;
  gpuctl::v1::JobSpec spec_;
  std::vector<std::string> said_;  // to Slurm
  absl::Status slurm_;
  RestartKit kit_;
};

TEST_F(RestartTest, AJobThatWasStoppedInTheQueueDoesNotGoOn) {
  Append(Type::kStarted);
  ASSERT_OK(Keep());
  ASSERT_OK(NoteStopped(dir_.Sub("shared"), "j-1", "user"));
  EXPECT_EQ(StoppedReason(dir_.Sub("shared"), "j-1"), "user");
  EXPECT_EQ(StoppedReason(dir_.Sub("shared"), "j-2"), std::nullopt);
  EXPECT_TRUE(absl::IsNotFound(StartNext()));
  // Its end is the user's, also in the copy of a node that failed.
  ASSERT_OK(EndKept(copy_.Job("j-1"), copy_.root, "user", clock_));
  ASSERT_OK(EndKept(copy_.Job("j-1"), copy_.root, "another", clock_));
  const Lifecycle over = ReadLifecycle(copy_.Job("j-1")).value();
  EXPECT_TRUE(IsOver(over));
  EXPECT_EQ(LastStateEvent(over)->type, Type::kExited);
  EXPECT_EQ(LastStateEvent(over)->reason, "user");
}

TEST_F(RestartTest, OnlyADirectoryOfThisUserAloneIsTrusted) {
  const std::string directory = dir_.Sub("shared");
  ASSERT_EQ(chmod(directory.c_str(), 0755), 0);
  EXPECT_OK(CheckOwnDirectory(directory));
  ASSERT_EQ(symlink(directory.c_str(), dir_.Sub("link").c_str()), 0);
  EXPECT_TRUE(absl::IsPermissionDenied(CheckOwnDirectory(dir_.Sub("link"))));
  for (const mode_t mode : {0770, 0757}) {
    ASSERT_EQ(chmod(directory.c_str(), mode), 0);
    EXPECT_TRUE(absl::IsPermissionDenied(CheckOwnDirectory(directory))) << mode;
  }
  EXPECT_TRUE(absl::IsNotFound(CheckOwnDirectory(dir_.Sub("nowhere"))));
  // The system's own belongs to somebody else, or others may write to it.
  EXPECT_TRUE(absl::IsPermissionDenied(CheckOwnDirectory("/tmp")));
}

TEST_F(RestartTest, AStoppedJobIsOverWhereAnotherGoesOn) {
  Append(Type::kStarted);
  StoredSpec other;
  other.spec = spec_;
  other.spec.set_job_id("j-2");
  other.spec_digest = SpecDigest(other.spec);
  dir_.Write("17-0/jobs/j-2/spec.json", FormatStoredSpec(other));
  ASSERT_OK(Keep());
  ASSERT_OK(NoteStopped(dir_.Sub("shared"), "j-1", "user"));
  ASSERT_OK(StartNext());
  EXPECT_TRUE(IsOver(LifecycleThere()));
  EXPECT_EQ(LastStateEvent(LifecycleThere())->reason, "user");
  EXPECT_FALSE(IsOver(ReadLifecycle(Next().Job("j-2")).value()));
}

TEST_F(RestartTest, TheRunningTimeThatAJobWasGivenStays) {
  Append(Type::kStarted);
  StreamsCopy streams(from_, copy_);
  ASSERT_OK(streams.Pass(true));
  dir_.Write("17-0/jobs/j-1/time_limit", "7200\n");
  ASSERT_OK(Keep());
  ASSERT_OK(StartNext());
  EXPECT_EQ(ReadFileToString(Next().Job("j-1").time_limit).value_or(""), "7200\n");
}

TEST_F(RestartTest, SlurmIsToldOnlyWhatIsTrue) {
  Append(Type::kStarted);
  ASSERT_OK(Keep());
  ASSERT_OK(Keep());
  EXPECT_EQ(said_, std::vector<std::string>({"17 again"}));
  EXPECT_TRUE(GoesOnAfterwards(from_, "j-1"));
  EXPECT_FALSE(GoesOnAfterwards(from_, "j-"));
  EXPECT_TRUE(PathExists(dir_.Sub("shared/again/bin/current/gpuctl-shim")));
  Append(Type::kExited);
  ASSERT_OK(Keep());
  EXPECT_EQ(said_.back(), "17 no more");
  EXPECT_FALSE(GoesOnAfterwards(from_, "j-1"));
}

TEST_F(RestartTest, AJobThatCannotGoOnByItselfIsNotStartedAgain) {
  Append(Type::kStarted);
  const gpuctl::v1::JobSpec good = spec_;
  const auto refuse = [&](const auto& change) {
    spec_ = good;
    change();
    Accept();
    EXPECT_OK(Keep());
    EXPECT_FALSE(GoesOnAfterwards(from_, "j-1"));
  };
  refuse([&] { spec_.add_secret_names("TOKEN"); });
  refuse([&] { spec_.mutable_gang()->set_size(2); });
  refuse([&] { spec_.mutable_retry()->set_max_retries(0); });
  refuse([&] { spec_.mutable_retry()->set_on(0, "failed"); });
  EXPECT_TRUE(said_.empty());
  refuse([&] { Append(Type::kStarted, 2); });  // its one retry is used up
  EXPECT_TRUE(said_.empty());
  // Content that the node has no more, or that a job has changed.
  spec_ = good;
  spec_.mutable_retry()->set_max_retries(5);
  spec_.set_manifest_digest(std::string(64, 'a'));
  Accept();
  EXPECT_FALSE(Keep().ok());
  EXPECT_FALSE(GoesOnAfterwards(from_, "j-1"));
  EXPECT_TRUE(said_.empty());
}

TEST_F(RestartTest, ALaterKeeperTakesBackWhatAnEarlierOneSaid) {
  Append(Type::kStarted);
  ASSERT_OK(Keep());
  Append(Type::kExited);
  RestartKit later(dir_.Sub("bundle"), [this](const std::string&, bool again) {
    said_.push_back(again ? "again" : "no more");
    return absl::OkStatus();
  });
  ASSERT_OK(later.Keep(from_, dir_.Sub("shared")));
  EXPECT_EQ(said_.back(), "no more");
  EXPECT_FALSE(GoesOnAfterwards(from_, "j-1"));
}

TEST_F(RestartTest, NoJobWaitsForAStartThatSlurmDoesNotMake) {
  Append(Type::kStarted);
  slurm_ = absl::UnavailableError("the controller hangs");
  EXPECT_FALSE(Keep().ok());
  EXPECT_FALSE(GoesOnAfterwards(from_, "j-1"));
  slurm_ = absl::OkStatus();
  ASSERT_OK(Keep());
  EXPECT_TRUE(GoesOnAfterwards(from_, "j-1"));
}

TEST_F(RestartTest, ProgramsThatCannotRunThereAreNoWayToGoOn) {
  Append(Type::kStarted);
  dir_.Write("bundle/gpuctl-agent", "#!/bin/sh\nexit 1\n", 0755);
  EXPECT_FALSE(Keep().ok());
  EXPECT_FALSE(GoesOnAfterwards(from_, "j-1"));
  EXPECT_TRUE(said_.empty());
}

TEST_F(RestartTest, AnEarlierStartEndsWhenALaterOneHasBegun) {
  Append(Type::kStarted);
  ASSERT_OK(Keep());
  dir_.Write("shared/18-1/node_id", "another job's\n");
  ASSERT_OK(Keep());
  dir_.Write("shared/17-1/node_id", "n-1\n");
  EXPECT_TRUE(absl::IsAborted(Keep()));
}

TEST_F(RestartTest, APreemptedJobWaitsForItsNextAttemptWithAllThatWasKept) {
  Append(Type::kStarted);
  dir_.Write("17-0/jobs/j-1/ckpt/notes.txt", "saved");
  gpuctl::v1::NodeLimits limits;
  limits.set_revision(3);
  limits.set_lease_id("l-1");
  limits.set_idle_s(60);
  limits.set_salvage_s(60);
  limits.set_lease_s(3600);
  ASSERT_OK(StoreNodeLimits(from_, limits, StampNow("first", clock_)));
  dir_.Write("17-0/node/telemetry/00000000000000000000", "{}\n");
  StreamWriter output = StreamWriter::Open(from_.Job("j-1").output, OutputShape(spec_)).value();
  ASSERT_OK(output.Append("line 1\n"));
  ASSERT_OK(Keep());
  Append(Type::kExited);
  Append(Type::kRetry, 2);
  ASSERT_OK(StartNext());
  const RootPaths next = Next();
  EXPECT_EQ(ReadFileToString(next.node_id).value_or(""), "n-1\n");
  EXPECT_TRUE(PathExists(JoinPath(next.bin_current, "gpuctl-agent")));
  EXPECT_EQ(ReadFileToString(JoinPath(next.Job("j-1").checkpoints, "notes.txt")).value_or(""),
            "saved");
  EXPECT_EQ(StreamReader(next.Job("j-1").output, OutputShape(spec_)).GetExtent()->size, 7);
  EXPECT_EQ(LifecycleThere().events.size(), 3u);
  EXPECT_EQ(LastStateEvent(LifecycleThere())->type, Type::kRetry);
  EXPECT_FALSE(PathExists(next.Job("j-1").stop));
  EXPECT_EQ(ReadNodeLimits(next)->limits.lease_id(), "l-1");
  EXPECT_TRUE(PathExists(next.claimed));
  EXPECT_EQ(ReadFileToString(JoinPath(next.telemetry, "00000000000000000000")).value_or(""),
            "{}\n");
  EXPECT_TRUE(IsDirectory(next.Job("j-1").work));
}

// A later start may fail before it has copied anything of its own.
TEST_F(RestartTest, ALaterCopyCountsOnlyWithTheFilesOfTheOneBefore) {
  Append(Type::kStarted);
  dir_.Write("17-0/jobs/j-1/ckpt/model.pt", "weights");
  dir_.Write("17-0/jobs/j-1/ckpt/notes/a", "a");
  ASSERT_OK(Keep());
  ASSERT_OK(StartNext());
  const RootPaths later(dir_.Sub("shared/17-1"));
  ASSERT_OK(TakeFilesOf(copy_, later));
  const std::string kept = later.Job("j-1").checkpoints;
  EXPECT_EQ(ReadFileToString(JoinPath(kept, "model.pt")).value_or(""), "weights");
  EXPECT_EQ(ReadFileToString(JoinPath(kept, "notes/a")).value_or(""), "a");
  struct stat there {};
  ASSERT_EQ(stat(JoinPath(kept, "model.pt").c_str(), &there), 0);
  EXPECT_EQ(there.st_nlink, 2u) << "takes no room";
  // Until it counts, the next start goes on from the first.
  EXPECT_EQ(EarlierCopy(dir_.Sub("shared"), {"17", 2}).value_or(""), copy_.root);
  ASSERT_OK(StreamsCopy(Next(), later).Pass(true));
  dir_.Write("shared/17-1/node_id", "n-1\n");
  EXPECT_EQ(EarlierCopy(dir_.Sub("shared"), {"17", 2}).value_or(""), later.root);
  ASSERT_OK(StartAgain(Next(2), dir_.Sub("shared"), clock_));
  EXPECT_FALSE(PathExists(copy_.root));
  EXPECT_EQ(ReadFileToString(JoinPath(Next(2).Job("j-1").checkpoints, "model.pt")).value_or(""),
            "weights");
}

TEST_F(RestartTest, AnAttemptWithoutAnEndIsLostAndTheNextOneFollows) {
  Append(Type::kStarted);
  ASSERT_OK(Keep());
  clock_.Advance(absl::Hours(3));
  ASSERT_OK(StartNext());
  const Lifecycle lifecycle = LifecycleThere();
  ASSERT_EQ(lifecycle.events.size(), 3u);
  EXPECT_EQ(lifecycle.events[1].type, Type::kLost);
  EXPECT_EQ(lifecycle.events[1].reason, kNodeFailedReason);
  // What it waited in the queue is no running time.
  EXPECT_EQ(lifecycle.events[1].time_ms, lifecycle.events[0].time_ms);
  EXPECT_EQ(lifecycle.events[2].type, Type::kRetry);
  EXPECT_EQ(lifecycle.events[2].attempt, 2);
}

TEST_F(RestartTest, WithoutAJobThatGoesOnNothingIsStarted) {
  Append(Type::kStarted);
  ASSERT_OK(Keep());
  Append(Type::kExited);
  EXPECT_TRUE(absl::IsNotFound(StartNext()));
  EXPECT_FALSE(PathExists(Next().bin_current));
  // The last attempt.
  Append(Type::kRetry, 2);
  Append(Type::kStarted, 2);
  EXPECT_TRUE(absl::IsNotFound(StartNext()));
}

// What is damaged is one job's, and the others go on.
TEST_F(RestartTest, ADamagedJobKeepsNoOtherFromGoingOn) {
  Append(Type::kStarted);
  AddRunning("j-2");
  ASSERT_OK(Keep());
  ASSERT_OK(Copy());
  dir_.Write("shared/17-0/jobs/j-2/spec.json", "{\"spec_dig");
  ASSERT_OK(Start());
  EXPECT_EQ(LastStateEvent(LifecycleThere())->type, Type::kRetry);
  EXPECT_THAT(WordsThere("j-2"), AllOf(StartsWith("not started again: "), HasSubstr("spec.json")));
  EXPECT_EQ(LastStateEvent(LifecycleThere("j-2"))->type, Type::kLost);
  // All that it has can be read there.
  const JobPaths job = Next().Job("j-2");
  ASSERT_OK(ReadStoredSpec(job));
  EXPECT_EQ(ReadStoredSpec(job)->spec.job_id(), "j-2");
  EXPECT_EQ(StreamReader(job.output, OutputShape(spec_)).GetExtent()->size, 7);
  EXPECT_EQ(ReadFileToString(JoinPath(job.checkpoints, "notes.txt")).value_or(""), "saved");
  // Nothing of it is removed later, either.
  dir_.Write("shared/17-1/node_id", "n-1\n");
  const RootPaths later(dir_.Sub("shared/17-1"));
  ASSERT_OK(StreamsCopy(Next(), later).Pass(true));
  ASSERT_OK(Start(2));
  EXPECT_EQ(ReadFileToString(copy_.Job("j-2").spec).value_or(""), "{\"spec_dig");
}

TEST_F(RestartTest, NoFileOfOneJobKeepsAnotherFromGoingOn) {
  Append(Type::kStarted);
  AddRunning("j-2");
  ASSERT_OK(Keep());
  ASSERT_OK(Copy());
  const JobPaths kept = copy_.Job("j-2");
  const std::string spec = ReadFileToString(kept.spec).value();
  int restart = 0;
  for (const std::string& path : {kept.spec, kept.lifecycle, kept.metrics, kept.time_limit}) {
    SCOPED_TRACE(path);
    const std::string before = ReadFileToString(path).value_or("");
    ASSERT_OK(RemoveTree(path));
    ASSERT_OK(MakeDirectories(path));  // no file can be read there
    ASSERT_OK(Start(++restart));
    const RootPaths next = Next(restart);
    EXPECT_FALSE(IsOver(ReadLifecycle(next.Job("j-1")).value()));
    const Lifecycle other = ReadLifecycle(next.Job("j-2")).value();
    ASSERT_TRUE(IsOver(other));
    EXPECT_THAT(LastStateEvent(other)->reason, StartsWith("not started again: "));
    ASSERT_OK(RemoveTree(path));
    if (!before.empty()) {
      ASSERT_OK(WriteFileAtomic(path, before));
    }
  }
  // One whose spec.json is gone has results, too.
  ASSERT_OK(RemoveTree(kept.spec));
  ASSERT_OK(Start(++restart));
  EXPECT_TRUE(IsOver(ReadLifecycle(Next(restart).Job("j-2")).value()));
  ASSERT_OK(WriteFileAtomic(kept.spec, spec));
  ASSERT_OK(Start(++restart));
  EXPECT_FALSE(IsOver(ReadLifecycle(Next(restart).Job("j-2")).value()));
}

TEST_F(RestartTest, AJobWhoseContentIsGoneSaysSoAndTheOthersGoOn) {
  Append(Type::kStarted);
  spec_.set_manifest_digest(std::string(64, 'a'));
  AddRunning("j-2");
  EXPECT_FALSE(Keep().ok());
  ASSERT_OK(StartNext());
  EXPECT_FALSE(IsOver(LifecycleThere()));
  EXPECT_THAT(WordsThere("j-2"),
              AllOf(StartsWith("not started again: "), HasSubstr(std::string(64, 'a'))));
  EXPECT_EQ(LastStateEvent(LifecycleThere("j-2"))->attempt, 1);
  EXPECT_EQ(ReadFileToString(JoinPath(Next().Job("j-2").checkpoints, "notes.txt")).value_or(""),
            "saved");
  EXPECT_FALSE(PathExists(Next().Job("j-2.gpuctl-new").dir));
}

TEST_F(RestartTest, AJobForWhichThereIsNoRoomSaysSo) {
  Append(Type::kStarted);
  AddRunning("j-2");
  ASSERT_OK(Keep());
  ASSERT_OK(Copy());
  std::string full = "j-2.gpuctl-new/ckpt/";
  file_ops::SetFaultHook([&full](file_ops::Op op, const std::string& path) {
    return op == file_ops::Op::kOpen && absl::StrContains(path, full) ? ENOSPC : 0;
  });
  const absl::Status one = Start();
  full = ".gpuctl-new/";
  const absl::Status none = Start(2);
  file_ops::SetFaultHook(nullptr);
  ASSERT_OK(one);
  EXPECT_FALSE(IsOver(LifecycleThere()));
  EXPECT_THAT(WordsThere("j-2"),
              AllOf(StartsWith("not started again: "), HasSubstr("No space left on device")));
  EXPECT_FALSE(PathExists(Next().Job("j-2.gpuctl-new").dir));
  EXPECT_FALSE(absl::IsNotFound(none));
  EXPECT_THAT(std::string(none.message()),
              AllOf(HasSubstr("j-1: "), HasSubstr("j-2: "), HasSubstr("No space left on device")));
}

// Without its files' copy, the next start would keep nothing of any job.
TEST_F(RestartTest, ADamagedFileOfOneJobKeepsNoOtherFromBeingKept) {
  dir_.Write("17-0/jobs/j-1/ckpt/notes.txt", "saved");
  Append(Type::kStarted);
  AddRunning("j-2");
  ASSERT_OK(Keep());
  ASSERT_OK(Copy());
  const RootPaths later(dir_.Sub("shared/17-1"));
  for (const char* job : {"j-1", "j-2"}) {
    // So that files are copied, as where there are no hard links.
    dir_.Write(absl::StrCat("shared/17-1/jobs/", job, "/ckpt"), "");
  }
  file_ops::SetFaultHook([](file_ops::Op, const std::string& path) {
    return absl::StrContains(path, "17-0/jobs/j-2/ckpt/notes.txt") ? EIO : 0;
  });
  const absl::Status taken = TakeFilesOf(copy_, later);
  file_ops::SetFaultHook(nullptr);
  ASSERT_OK(taken);
  EXPECT_EQ(ReadFileToString(later.Job("j-1").checkpoints + "/notes.txt").value_or(""), "saved");
  EXPECT_TRUE(Stays(copy_.Job("j-2")));
  EXPECT_FALSE(Stays(copy_.Job("j-1")));
}

TEST_F(RestartTest, AnEmptiedLifecycleIsNoFirstAttempt) {
  Append(Type::kStarted);
  AddRunning("j-2");
  ASSERT_OK(Keep());
  ASSERT_OK(Copy());
  for (const std::string& left :
       {std::string(), std::string("{\"event\":\"sta"), absl::StrCat(std::string(8, '\0'), "\n")}) {
    dir_.Write("shared/17-0/jobs/j-2/lifecycle.jsonl", left);
    ASSERT_OK(RemoveTree(Next().root));
    ASSERT_OK(Start());
    EXPECT_THAT(WordsThere("j-2"), HasSubstr("lifecycle.jsonl is damaged")) << left;
  }
  // Without the file what it printed tells.
  ASSERT_OK(RemoveTree(copy_.Job("j-2").lifecycle));
  ASSERT_OK(RemoveTree(Next().root));
  ASSERT_OK(Start());
  EXPECT_THAT(WordsThere("j-2"), HasSubstr("lifecycle.jsonl is damaged"));
  // One that has not begun has none, and begins.
  ASSERT_OK(RemoveTree(copy_.Job("j-2").output));
  ASSERT_OK(RemoveTree(copy_.Job("j-2").checkpoints));
  ASSERT_OK(RemoveTree(Next().root));
  ASSERT_OK(Start());
  EXPECT_EQ(LastStateEvent(LifecycleThere("j-2")), nullptr);
}

TEST_F(RestartTest, AnAttemptWhoseLineIsTornCounts) {
  spec_.mutable_retry()->set_max_retries(2);
  Accept();
  Append(Type::kStarted);
  Append(Type::kExited);
  Append(Type::kRetry, 2);
  ASSERT_OK(Keep());
  ASSERT_OK(Copy());
  const std::string whole = ReadFileToString(copy_.Job("j-1").lifecycle).value();
  const auto attempt_after = [&](const std::string& left) {
    dir_.Write("shared/17-0/jobs/j-1/lifecycle.jsonl", left);
    EXPECT_OK(RemoveTree(Next().root));
    EXPECT_OK(Start());
    const Lifecycle there = LifecycleThere();
    return IsOver(there) ? 0 : LastStateEvent(there)->attempt;
  };
  EXPECT_EQ(attempt_after(whole), 2);
  EXPECT_EQ(attempt_after(absl::StrCat(whole, "{\"event\":\"queued\",\"att")), 2);
  EXPECT_EQ(attempt_after(absl::StrCat(whole, "{\"event\":\"of a newer version\"}\n")), 2);
  EXPECT_EQ(attempt_after(absl::StrCat(whole, "{\"event\":\"started\",\"att")), 3);
  EXPECT_EQ(attempt_after(absl::StrCat(whole, std::string(8, '\0'), "\n")), 3);
  // What came with the attempt shows it, too, when no byte of its line was kept.
  dir_.Write("shared/17-0/jobs/j-1/metrics.jsonl",
             "{\"gpuctl\":{\"attempt\":1,\"output_offset\":0},\"loss\":1}\n");
  EXPECT_EQ(attempt_after(whole), 2);
  dir_.Write("shared/17-0/jobs/j-1/metrics.jsonl",
             "{\"gpuctl\":{\"attempt\":2,\"output_offset\":0},\"loss\":1}\n{\"gp");
  EXPECT_EQ(attempt_after(whole), 3);
  ASSERT_OK(RemoveTree(copy_.Job("j-1").metrics));
  dir_.Write("shared/17-0/jobs/j-1/output/00000000000000000000", "line 1\n");
  EXPECT_EQ(attempt_after(whole), 3);
}

TEST_F(RestartTest, WhereNoJobCanGoOnTheStartSaysWhy) {
  AddRunning("j-1");
  ASSERT_OK(Keep());
  ASSERT_OK(Copy());
  dir_.Write("shared/17-0/jobs/j-1/lifecycle.jsonl", "");
  const absl::Status failed = Start();
  EXPECT_FALSE(absl::IsNotFound(failed));
  EXPECT_THAT(std::string(failed.message()), HasSubstr("j-1: lifecycle.jsonl is damaged"));
}

TEST_F(RestartTest, AStartThatFailsIsTheReasonOfTheRunsEnd) {
  AddRunning("j-1");
  ASSERT_OK(Keep());
  AddRunning("j-2");
  Append(Type::kExited, 1, "j-2");
  ASSERT_OK(Copy());
  ASSERT_OK(RemoveTree(dir_.Sub("shared/again/bin")));
  ASSERT_EQ(setenv(kResultsTokenVariable, "t0ken", 1), 0);
  dir_.Write("shared/token", "t0ken\n");
  EXPECT_EQ(FailedStartAfter(copy_), std::nullopt);
  EXPECT_EQ(RunStartAgain(Next().root, dir_.Sub("shared")), 1);
  EXPECT_THAT(FailedStartAfter(copy_).value_or(""), HasSubstr("no programs are in"));
  EXPECT_EQ(FailedStartAfter(RootPaths(dir_.Sub("shared/17-1"))), std::nullopt) << "a later one";
  EndAllKept(copy_, clock_);
  EndAllKept(copy_, clock_);
  const Lifecycle over = ReadLifecycle(copy_.Job("j-1")).value();
  EXPECT_EQ(over.events.size(), 2u);
  EXPECT_EQ(LastStateEvent(over)->type, Type::kLost);
  EXPECT_THAT(LastStateEvent(over)->reason,
              AllOf(StartsWith("not started again: "), HasSubstr("no programs are in")));
  // What ended before has its own end.
  EXPECT_EQ(ReadLifecycle(copy_.Job("j-2")).value().events.size(), 2u);
}

TEST_F(RestartTest, AStartForNothingIsNoFailure) {
  AddRunning("j-1");
  ASSERT_OK(Keep());
  Append(Type::kExited);
  ASSERT_OK(Copy());
  ASSERT_EQ(setenv(kResultsTokenVariable, "t0ken", 1), 0);
  dir_.Write("shared/token", "t0ken\n");
  EXPECT_EQ(RunStartAgain(Next().root, dir_.Sub("shared")), 1);
  EXPECT_EQ(FailedStartAfter(copy_), std::nullopt);
}

}  // namespace
}  // namespace gpuctl
