#include "agent/hold/dead_roots.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "common/base/fake_clock.h"
#include "common/files/files.h"
#include "common/release/release_route.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

class DeadRootsTest : public ::testing::Test {
 protected:
  DeadRootsTest() : roots_(RootPaths(Root("30-0")), clock_) {}

  // Makes the root of an allocation, with a batch script that is gone.
  std::string Root(const std::string& name) {
    const std::string root = dir_.Sub(name);
    dir_.Write(name + "/" + kHeldFile, "{}");
    EXPECT_EQ(mkfifo(JoinPath(root, kHeldSignFile).c_str(), 0600), 0);
    dir_.Write(name + ".root", root + "\n");
    return root;
  }
  // What a batch script has open as long as it lives.
  UniqueFd Live(const std::string& root) {
    return UniqueFd(open(JoinPath(root, kHeldSignFile).c_str(), O_RDWR | O_CLOEXEC));
  }
  std::string Later() {
    clock_.Advance(DeadRoots::kDeadFor + absl::Seconds(1));
    return roots_.Next();
  }

  TempDir dir_;
  FakeClock clock_;
  DeadRoots roots_;
};

TEST_F(DeadRootsTest, OnlyARootThatStaysDeadIsFoundAndOnlyOnce) {
  const std::string dead = Root("17-1");
  const std::string live = Root("18-0");
  const UniqueFd script = Live(live);
  EXPECT_EQ(roots_.Next(), "");
  clock_.Advance(DeadRoots::kDeadFor - absl::Seconds(1));
  EXPECT_EQ(roots_.Next(), "");
  EXPECT_EQ(Later(), dead);
  EXPECT_EQ(Later(), "");
}

TEST_F(DeadRootsTest, ARootThatIsJustBeingMadeBeginsAnew) {
  const std::string root = Root("17-0");
  EXPECT_EQ(roots_.Next(), "");
  UniqueFd script = Live(root);
  EXPECT_EQ(Later(), "");
  script.reset();
  EXPECT_EQ(Later(), "");
  EXPECT_EQ(Later(), root);
}

TEST_F(DeadRootsTest, WhatIsNoRootStays) {
  Root("mine");
  Root("17-0-old");
  Root("-3");
  dir_.Write("19-0/notes", "no marker");
  dir_.Write("20-0", "a file");
  ASSERT_EQ(symlink(Root("elsewhere").c_str(), dir_.Sub("21-0").c_str()), 0);
  EXPECT_EQ(roots_.Next(), "");
  EXPECT_EQ(Later(), "");
}

TEST_F(DeadRootsTest, ARootOfAnotherKindLooksNowhere) {
  DeadRoots other(RootPaths(Root("node")), clock_);
  Root("17-0");
  EXPECT_EQ(other.Next(), "");
  clock_.Advance(DeadRoots::kDeadFor + absl::Seconds(1));
  EXPECT_EQ(other.Next(), "");
}

TEST_F(DeadRootsTest, TheRemovalTakesTheFileThatNamesTheRoot) {
  const std::string root = Root("17-0");
  dir_.Write("17-0/jobs/j-1/work/locked/file", "x");
  ASSERT_EQ(chmod(dir_.Sub("17-0/jobs/j-1/work/locked").c_str(), 0500), 0);
  ASSERT_TRUE(StartRemoval(root));
  int status = -1;
  ASSERT_GT(wait(&status), 0);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(PathExists(root));
  EXPECT_FALSE(PathExists(root + ".root"));
  EXPECT_TRUE(PathExists(dir_.Sub("30-0")));
}

}  // namespace
}  // namespace gpuctl
