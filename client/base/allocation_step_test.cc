// Runs the lines by sh, with a srun that runs its command here and an id of the test's own.
#include "client/base/allocation_step.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/process/process.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

class InStepTest : public testing::Test {
 protected:
  InStepTest() : held_(absl::StrCat("/tmp/gpuctl-", BaseName(dir_.path()))) {
    EXPECT_OK(MakeDirectories(held_, 0700));
    // The last argument is the script of "sh -c".
    dir_.Write("bin/srun",
               "#!/bin/sh\necho \"$*\" | head -n 1 >\"$0.asked\"\n"
               "for script in \"$@\"; do :; done\nexec sh -c \"$script\"\n",
               0755);
    dir_.Write("bin/id", absl::StrCat("#!/bin/sh\necho ", BaseName(dir_.path()), "\n"), 0755);
  }
  ~InStepTest() override { (void)RemoveTree(held_); }

  void Hold(const std::string& start, const std::string& root) {
    EXPECT_OK(WriteFileAtomic(absl::StrCat(held_, "/", start, ".root"), root + "\n"));
  }
  // Returns what the command prints, and keeps its exit code.
  std::string Run(const std::string& job, const std::string& command) {
    SpawnOptions spawn;
    spawn.argv = {"/usr/bin/env", absl::StrCat("PATH=", dir_.Sub("bin"), ":/usr/bin:/bin"), "sh",
                  "-c",
                  absl::StrCat("( ", InStep(job, 2, command), " ) >", dir_.Sub("out"), " 2>",
                               dir_.Sub("said"))};
    const auto pid = Spawn(spawn);
    EXPECT_OK(pid);
    int status = 0;
    EXPECT_EQ(waitpid(pid.value_or(0), &status, 0), pid.value_or(0));
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return ReadFileToString(dir_.Sub("out")).value_or("?");
  }
  std::string Said() const { return ReadFileToString(dir_.Sub("said")).value_or(""); }

  TempDir dir_;
  const std::string held_;
  int code_ = 0;
};

TEST_F(InStepTest, WithoutAnAllocationTheCommandIsItself) {
  EXPECT_EQ(InStep("", 0, "echo x"), "echo x");
}

TEST_F(InStepTest, TheNewestStartOfTheJobCounts) {
  Hold("7-9", "/old");
  Hold("7-10", "/new");
  Hold("7-2", "/oldest");
  Hold("77-12", "/of another job");
  Hold("7-x", "/no start");
  EXPECT_EQ(Run("7", absl::StrCat("echo \"$", kHeldRootVariable, "\"")), "/new\n");
  EXPECT_EQ(code_, 0);
  EXPECT_EQ(
      ReadFileToString(dir_.Sub("bin/srun.asked"))
          .value_or("")
          .find("-u -Q --mpi=none --jobid=7 --overlap --nodes=1 --ntasks=1 --relative=2 sh -c "),
      0u);
}

// srun takes no "7_3".
TEST_F(InStepTest, ATaskOfAnArrayIsNamedByItsOwnNumber) {
  dir_.Write("bin/squeue", "#!/bin/sh\necho \"$*\" >\"$0.asked\"\necho 12\n", 0755);
  Hold("7_3-0", "/root of it");
  Hold("7-0", "/of another job");
  EXPECT_EQ(Run("7_3", absl::StrCat("echo \"$", kHeldRootVariable, "\"; exit 9")), "/root of it\n");
  EXPECT_EQ(code_, 9);
  EXPECT_EQ(
      ReadFileToString(dir_.Sub("bin/srun.asked"))
          .value_or("")
          .find("-u -Q --mpi=none --jobid=12 --overlap --nodes=1 --ntasks=1 --relative=2 sh -c "),
      0u);
  EXPECT_NE(ReadFileToString(dir_.Sub("bin/squeue.asked")).value_or("").find(" -j 7_3 "),
            std::string::npos);
  // It has no node.
  dir_.Write("bin/squeue", "#!/bin/sh\n", 0755);
  EXPECT_EQ(Run("7_3", "echo never"), "");
  EXPECT_EQ(code_, kNotHeldExit);
  EXPECT_EQ(Said(), "the holder of job 7_3 has not begun, or is over\n");
  // Nobody says whether it has.
  dir_.Write("bin/squeue", "#!/bin/sh\nexit 1\n", 0755);
  EXPECT_EQ(Run("7_3", "echo never"), "");
  EXPECT_EQ(code_, 1);
}

TEST_F(InStepTest, ACommandKeepsItsExitCodeAndItsWords) {
  Hold("7-0", "/root of it");
  EXPECT_EQ(Run("7", "printf '%s|' \"it's\" '$HOME' \"a  b\"; exit 9"), "it's|$HOME|a  b|");
  EXPECT_EQ(code_, 9);
}

TEST_F(InStepTest, WithoutAHolderItSaysSo) {
  for (const char* other : {"8-0", "17-0", "7-x"}) Hold(other, "/other");
  EXPECT_EQ(Run("7", "echo never"), "");
  EXPECT_EQ(code_, kNotHeldExit);
  EXPECT_EQ(Said(), "the holder of job 7 has not begun, or is over\n");
}

TEST_F(InStepTest, ADirectoryOfSomebodyElseIsNotBelieved) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives a directory away";
  Hold("7-0", "/trap");
  ASSERT_EQ(chown(held_.c_str(), 65534, 65534), 0);
  EXPECT_EQ(Run("7", "echo never"), "");
  EXPECT_EQ(code_, kNotHeldExit);
}

TEST(IsAllocationTest, TakesNumbersOnly) {
  for (const char* job : {"1", "17", "12345678901", "17_0", "17_1000"}) {
    EXPECT_TRUE(IsAllocation(job)) << job;
  }
  for (const char* other : {"", "-1", "1_", "_2", "17_[0-3]", "x", "1;reboot", "123456789012"}) {
    EXPECT_FALSE(IsAllocation(other)) << other;
  }
}

}  // namespace
}  // namespace gpuctl
