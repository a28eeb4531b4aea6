#include "agent/hold/jobs_end.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "agent/base/node_root.h"
#include "common/base/fake_clock.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/job/lifecycle.h"
#include "common/job/stream_file.h"
#include "common/process/process.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using Type = LifecycleEvent::Type;

class JobsEndTest : public ::testing::Test {
 protected:
  JobsEndTest() : paths_(PrepareNodeRoot(dir_.Sub("node")).value()) {}
  ~JobsEndTest() override { unsetenv("GPUCTL_HOLD_GRACE_S"); }

  void Accept(const std::string& id) {
    StoredSpec stored;
    stored.spec.set_job_id(id);
    stored.spec.add_argv("true");
    // A shutdown would be retried, and a failure, too.
    stored.spec.mutable_retry()->set_max_retries(5);
    stored.spec.mutable_retry()->add_on("lost");
    stored.spec.mutable_retry()->add_on("failed");
    stored.spec_digest = SpecDigest(stored.spec);
    dir_.Write(absl::StrCat("node/jobs/", id, "/spec.json"), FormatStoredSpec(stored));
  }
  // What the job's shim does first.
  void Begin(const std::string& id) {
    const JobPaths job = paths_.Job(id);
    if (!locks_.contains(id)) locks_[id] = TryLock(job.lock).value();
    ASSERT_EQ(mkfifo(job.control.c_str(), 0600), 0);
    fifos_[id] = UniqueFd(open(job.control.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    Append(id, Type::kStarted);
  }
  void End(const std::string& id) {
    Append(id, Type::kExited);
    locks_.erase(id);
  }
  void Append(const std::string& id, Type type) {
    LifecycleEvent event;
    event.type = type;
    event.attempt = 1;
    if (type == Type::kExited) event.exit_code = 0;
    StreamWriter writer = StreamWriter::Open(paths_.Job(id).lifecycle, PlainShape()).value();
    ASSERT_OK(writer.Append(FormatLifecycleEvent(event)));
  }
  std::string Heard(const std::string& id) {
    char buffer[4096];
    const ssize_t got = read(fifos_[id].get(), buffer, sizeof(buffer));
    return got > 0 ? std::string(buffer, static_cast<size_t>(got)) : "";
  }

  TempDir dir_;
  FakeClock clock_;
  const RootPaths paths_;
  std::map<std::string, UniqueFd> locks_;
  std::map<std::string, UniqueFd> fifos_;
};

TEST_F(JobsEndTest, ARunningJobIsStoppedOnceAndKilledAfterTheGrace) {
  Accept("j-1");
  Begin("j-1");
  JobsEnd end(paths_, absl::Seconds(30), clock_);
  EXPECT_FALSE(end.Proceed());
  EXPECT_EQ(Heard("j-1"), "stop the allocation ends\n");
  EXPECT_EQ(ReadFileToString(paths_.Job("j-1").stop).value_or(""), "the allocation ends\n");
  clock_.Advance(absl::Seconds(29));
  EXPECT_FALSE(end.Proceed());
  EXPECT_EQ(Heard("j-1"), "");
  clock_.Advance(absl::Seconds(1));
  EXPECT_FALSE(end.Proceed());
  EXPECT_EQ(Heard("j-1"), "stop the allocation ends\nstop now\n");
  clock_.Advance(absl::Seconds(4));
  EXPECT_FALSE(end.Proceed()) << "its shim may record the end";
  EXPECT_EQ(Heard("j-1"), "");
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(end.Proceed()) << "a shim that hangs";
}

TEST_F(JobsEndTest, ItIsOverWhenTheJobsAre) {
  Accept("j-1");
  Begin("j-1");
  Accept("j-2");
  Begin("j-2");
  JobsEnd end(paths_, absl::Seconds(30), clock_);
  EXPECT_FALSE(end.Proceed());
  End("j-1");
  EXPECT_FALSE(end.Proceed());
  End("j-2");
  EXPECT_TRUE(end.Proceed());
  Accept("j-3");
  Begin("j-3");
  EXPECT_FALSE(end.Proceed()) << "accepted meanwhile";
  EXPECT_EQ(Heard("j-3"), "stop the allocation ends\n");
}

TEST_F(JobsEndTest, AJobThatWaitsEndsAtOnceAndIsNotRetried) {
  Accept("j-1");
  JobsEnd end(paths_, absl::Seconds(30), clock_);
  EXPECT_TRUE(end.Proceed());
  const Lifecycle lifecycle = ReadLifecycle(paths_.Job("j-1")).value();
  ASSERT_EQ(lifecycle.events.size(), 1u);
  EXPECT_EQ(lifecycle.events[0].type, Type::kExited);
  EXPECT_EQ(lifecycle.events[0].reason, "the allocation ends");
}

TEST_F(JobsEndTest, AShimThatIsStartingIsToldAgain) {
  Accept("j-1");
  locks_["j-1"] = TryLock(paths_.Job("j-1").lock).value();
  JobsEnd end(paths_, absl::Seconds(30), clock_);
  EXPECT_FALSE(end.Proceed());
  Begin("j-1");
  EXPECT_FALSE(end.Proceed());
  EXPECT_EQ(Heard("j-1"), "stop the allocation ends\n");
}

TEST_F(JobsEndTest, AHurryOnlyShortensTheGrace) {
  Accept("j-1");
  Begin("j-1");
  JobsEnd end(paths_, absl::Seconds(30), clock_);
  end.Hurry(absl::Seconds(5));
  clock_.Advance(absl::Seconds(4));
  end.Hurry(absl::Seconds(5));
  EXPECT_FALSE(end.Proceed());
  EXPECT_EQ(Heard("j-1"), "stop the allocation ends\n");
  clock_.Advance(absl::Seconds(1));
  end.Hurry(absl::Seconds(5));
  EXPECT_FALSE(end.Proceed());
  EXPECT_EQ(Heard("j-1"), "stop the allocation ends\nstop now\n");
}

TEST_F(JobsEndTest, WhatIsLeftIsKilled) {
  Accept("j-1");
  Begin("j-1");
  JobsEnd end(paths_, absl::ZeroDuration(), Clock::Real());
  EXPECT_FALSE(end.Proceed());
  // One is a child of ours. The other is known only by the job's variable: nobody's child, as a
  // process of an earlier holder is.
  SpawnOptions spawn;
  spawn.argv = {"/bin/sh", "-c",
                absl::StrCat("GPUCTL_JOB_ID=j-1 setsid sleep 600 & echo $! >", dir_.Sub("other"),
                             ".new; mv ", dir_.Sub("other"), ".new ", dir_.Sub("other"))};
  const pid_t brief = Spawn(spawn).value();
  int status = 0;
  ASSERT_EQ(waitpid(brief, &status, 0), brief);
  spawn.argv = {"/bin/sleep", "600"};
  const pid_t child = Spawn(spawn).value();
  end.KillRest(absl::Seconds(30));
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  const pid_t other = atoi(ReadFileToString(dir_.Sub("other")).value_or("").c_str());
  ASSERT_GT(other, 0);
  const std::string line = absl::StrCat("/proc/", other, "/cmdline");
  EXPECT_EQ(ReadFileToString(line).value_or(""), "") << "a zombie has none";
}

TEST(HoldGraceTest, IsANumberOfSeconds) {
  unsetenv("GPUCTL_HOLD_GRACE_S");
  EXPECT_EQ(HoldGrace(), absl::Seconds(30));
  for (const auto& [text, seconds] :
       {std::pair("7", 7), {"0", 0}, {"-1", 30}, {"soon", 30}, {"", 30}}) {
    setenv("GPUCTL_HOLD_GRACE_S", text, 1);
    EXPECT_EQ(HoldGrace(), absl::Seconds(seconds)) << text;
  }
  unsetenv("GPUCTL_HOLD_GRACE_S");
}

}  // namespace
}  // namespace gpuctl
