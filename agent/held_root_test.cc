#include "agent/base/held_root.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "agent/base/environment.h"
#include "agent/base/guard_start.h"
#include "agent/base/node_root.h"
#include "agent/slots/visible_gpus.h"
#include "common/base/fake_clock.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/release/release_route.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

class HeldRootTest : public ::testing::Test {
 protected:
  HeldRootTest() : paths_(PrepareNodeRoot(dir_.Sub("node")).value()) {}
  ~HeldRootTest() override {
    unsetenv("GPUCTL_PID1_ENVIRON");
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("SLURM_OF_TEST");
  }

  void Mark() { dir_.Write("node/held", "{\"job\":\"17\",\"restart\":0}\n"); }
  // What the batch script does, as long as it lives.
  UniqueFd OpenSign() {
    const std::string sign = JoinPath(paths_.root, kHeldSignFile);
    EXPECT_EQ(mkfifo(sign.c_str(), 0600), 0);
    return UniqueFd(open(sign.c_str(), O_RDWR | O_CLOEXEC));
  }

  TempDir dir_;
  const RootPaths paths_;
  FakeClock clock_;
};

TEST_F(HeldRootTest, TheBatchScriptLivesAsLongAsItsFifoIsOpen) {
  EXPECT_FALSE(LivesBatchScript(paths_));
  UniqueFd sign = OpenSign();
  EXPECT_TRUE(LivesBatchScript(paths_));
  sign.reset();
  EXPECT_FALSE(LivesBatchScript(paths_));
}

TEST_F(HeldRootTest, AHolderMayBeStartedAgainWhileTheBatchScriptLives) {
  Mark();
  UniqueFd sign = OpenSign();
  HolderWatch watch(paths_, clock_);
  ASSERT_TRUE(watch.held());
  EXPECT_FALSE(watch.IsHolderGone());
  clock_.Advance(HolderWatch::kRestartWithin - absl::Milliseconds(1));
  EXPECT_FALSE(watch.IsHolderGone());
  {
    const absl::StatusOr<UniqueFd> lock = TryLock(paths_.guard_lock);
    ASSERT_OK(lock);
    clock_.Advance(absl::Minutes(1));
    EXPECT_FALSE(watch.IsHolderGone()) << "it was started again";
  }
  EXPECT_FALSE(watch.IsHolderGone()) << "it has died only now";
  clock_.Advance(HolderWatch::kRestartWithin);
  EXPECT_TRUE(watch.IsHolderGone());
}

TEST_F(HeldRootTest, WithoutABatchScriptNobodyStartsItAgain) {
  Mark();
  UniqueFd sign = OpenSign();
  HolderWatch watch(paths_, clock_);
  absl::StatusOr<UniqueFd> lock = TryLock(paths_.guard_lock);
  ASSERT_OK(lock);
  sign.reset();
  EXPECT_FALSE(watch.IsHolderGone()) << "the holder ends the jobs itself";
  lock->reset();
  EXPECT_TRUE(watch.IsHolderGone());
  EXPECT_OK(RemoveTree(paths_.root));
  EXPECT_TRUE(watch.IsHolderGone()) << "with the root, the marker is gone, too";
}

TEST_F(HeldRootTest, OtherRootsHaveNoHolder) {
  HolderWatch watch(paths_, clock_);
  clock_.Advance(absl::Hours(1));
  EXPECT_FALSE(watch.IsHolderGone());
}

TEST_F(HeldRootTest, NobodyElseStartsAGuardThere) {
  // A guard that is started all the same leaves a file.
  dir_.Write("node/bin/new/gpuctl-agent", "#!/bin/sh\n: >\"$3/started\"\n", 0755);
  ASSERT_EQ(symlink("new", paths_.bin_current.c_str()), 0);
  Mark();
  const absl::Status refused = EnsureGuard(paths_, dir_.path());
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("the allocation's holder does not run: the allocation has ended"));
  EXPECT_FALSE(PathExists(dir_.Sub("node/started")));
  {
    const absl::StatusOr<UniqueFd> lock = TryLock(paths_.guard_lock);
    EXPECT_OK(EnsureGuard(paths_, dir_.path()));
  }
  ASSERT_EQ(unlink(JoinPath(paths_.root, kHeldFile).c_str()), 0);
  EXPECT_OK(EnsureGuard(paths_, dir_.path()));
  EXPECT_TRUE(PathExists(dir_.Sub("node/started"))) << "the file tells nothing";
}

TEST_F(HeldRootTest, ARootThatItsBatchScriptHasRemovedIsNotMadeAgain) {
  const std::string name = absl::StrCat("gpuctl-", geteuid(), "/17-0");
  EXPECT_THAT(PrepareNodeRoot(dir_.Sub(name)).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_FALSE(PathExists(dir_.Sub(name)));
  dir_.Write(name + "/held", "");
  EXPECT_OK(PrepareNodeRoot(dir_.Sub(name)));
}

TEST_F(HeldRootTest, JobsHaveTheBatchScriptsEnvironment) {
  dir_.Write("pid1", std::string("OF_PID1=1\0CUDA_VISIBLE_DEVICES=0,1,2,3\0", 39));
  setenv("GPUCTL_PID1_ENVIRON", dir_.Sub("pid1").c_str(), 1);
  setenv("SLURM_OF_TEST", "2", 1);
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(BaseEnvironment(paths_).count("OF_PID1"), 1);
  EXPECT_EQ(BaseEnvironment(paths_).count("SLURM_OF_TEST"), 0);
  EXPECT_EQ(OwnVisibleDevices(paths_), "0,1,2,3");
  Mark();
  EXPECT_EQ(BaseEnvironment(paths_).count("OF_PID1"), 0);
  EXPECT_EQ(BaseEnvironment(paths_)["SLURM_OF_TEST"], "2");
  EXPECT_EQ(OwnVisibleDevices(paths_), std::nullopt) << "PID 1 is somebody else's there";
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  EXPECT_EQ(OwnVisibleDevices(paths_), "1");
  EXPECT_EQ(BaseEnvironment(paths_)["CUDA_VISIBLE_DEVICES"], "1");
}

TEST_F(HeldRootTest, WherePid1CannotBeReadTheOwnEnvironmentCounts) {
  setenv("GPUCTL_PID1_ENVIRON", dir_.Sub("nothing").c_str(), 1);
  setenv("SLURM_OF_TEST", "2", 1);
  EXPECT_EQ(BaseEnvironment(paths_)["SLURM_OF_TEST"], "2");
}

}  // namespace
}  // namespace gpuctl
