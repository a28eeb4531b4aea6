#include "agent/bundle/bundle_sweep.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "agent/bundle/bundle.h"
#include "common/base/fake_clock.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/process/pipe.h"
#include "common/process/process.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class BundleSweepTest : public ::testing::Test {
 protected:
  // The clock is years after the bundles, so that all of them are old.
  BundleSweepTest() : paths_(dir_.path()) { clock_.Advance(absl::Hours(24 * 365 * 100)); }

  // Makes the `number`-th bundle, delivered long ago.
  std::string Deliver(int number) {
    const std::string bundle = JoinPath(paths_.bin, Name(number));
    EXPECT_OK(MakeDirectories(bundle));
    EXPECT_OK(WriteFileAtomic(JoinPath(bundle, "version"), absl::StrCat(number, "\n")));
    return bundle;
  }
  static std::string Name(int number) { return absl::StrCat(number, std::string(31, 'a')); }
  void Adopt(int number) { ASSERT_TRUE(AdoptBundle(paths_, Deliver(number)).value()); }
  std::vector<std::string> Sweep() { return SweepBundles(paths_, clock_).value(); }

  TempDir dir_;
  RootPaths paths_;
  FakeClock clock_;
};

TEST_F(BundleSweepTest, TheCurrentOneAndTheOneBeforeStay) {
  for (const int number : {1, 2, 3, 4}) Adopt(number);
  EXPECT_THAT(Sweep(), ElementsAre(Name(1), Name(2)));
  EXPECT_THAT(dir_.Names("bin"), ElementsAre(".lock", Name(3), Name(4), "current"));
  EXPECT_THAT(Sweep(), IsEmpty());
}

TEST_F(BundleSweepTest, NothingGoesWithoutACurrentOne) {
  for (const int number : {1, 2, 3}) Deliver(number);
  EXPECT_THAT(Sweep(), IsEmpty());
}

TEST_F(BundleSweepTest, WhatALivingProcessRunsFromStays) {
  for (const int number : {1, 2, 3, 4}) Adopt(number);
  const std::string program = JoinPath(paths_.bin, absl::StrCat(Name(1), "/gpuctl-shim"));
  ASSERT_OK(WriteFileAtomic(program, ReadFileToString("/bin/cat", 64 << 20).value(), 0755));
  FdPair input = MakePipe("a pipe").value();
  SpawnOptions options;
  options.argv = {program};
  options.stdin_fd = input.first.get();
  const pid_t pid = Spawn(options).value();
  EXPECT_THAT(Sweep(), ElementsAre(Name(2)));
  input.second.reset();
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  EXPECT_THAT(Sweep(), ElementsAre(Name(1)));
}

// As with an emulator, the process's program is the interpreter, and only its command line names
// ours.
TEST_F(BundleSweepTest, WhatAnInterpreterRunsStays) {
  for (const int number : {1, 2, 3, 4}) Adopt(number);
  const std::string program = JoinPath(paths_.bin, absl::StrCat(Name(1), "/gpuctl-shim"));
  ASSERT_OK(WriteFileAtomic(program, "#!/bin/sh\nread line\n", 0755));
  FdPair input = MakePipe("a pipe").value();
  SpawnOptions options;
  options.argv = {program};
  options.stdin_fd = input.first.get();
  const pid_t pid = Spawn(options).value();
  EXPECT_THAT(Sweep(), ElementsAre(Name(2)));
  EXPECT_TRUE(PathExists(program));
  input.second.reset();
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  EXPECT_THAT(Sweep(), ElementsAre(Name(1)));
}

TEST_F(BundleSweepTest, WhatWasUsedLatelyStays) {
  for (const int number : {1, 2, 3, 4}) Adopt(number);
  const auto use_at = [&](int number, absl::Time time) {
    const struct timespec times[2] = {absl::ToTimespec(time), absl::ToTimespec(time)};
    const std::string path = JoinPath(paths_.bin, Name(number));
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  };
  use_at(1, clock_.Now() - absl::Hours(23));
  use_at(2, clock_.Now() - absl::Hours(25));
  EXPECT_THAT(Sweep(), ElementsAre(Name(2)));
  const struct stat before = [&] {
    struct stat info {};
    stat(JoinPath(paths_.bin, Name(1)).c_str(), &info);
    return info;
  }();
  NoteBundleUse(JoinPath(paths_.bin, Name(1)));
  struct stat after {};
  ASSERT_EQ(stat(JoinPath(paths_.bin, Name(1)).c_str(), &after), 0);
  EXPECT_NE(after.st_mtime, before.st_mtime);
}

TEST_F(BundleSweepTest, DeliveriesThatBrokeOffGoAndOtherThingsStay) {
  Adopt(1);
  ASSERT_OK(MakeDirectories(JoinPath(paths_.bin, ".partial-abc")));
  ASSERT_OK(MakeDirectories(JoinPath(paths_.bin, "of somebody else")));
  EXPECT_THAT(Sweep(), ElementsAre(".partial-abc"));
  EXPECT_TRUE(PathExists(JoinPath(paths_.bin, "of somebody else")));
}

TEST_F(BundleSweepTest, WhileABundleIsAdoptedNothingIsSwept) {
  for (const int number : {1, 2, 3}) Adopt(number);
  {
    const auto adopting = TryLock(JoinPath(paths_.bin, kBundleLock));
    ASSERT_OK(adopting);
    EXPECT_THAT(Sweep(), IsEmpty());
  }
  EXPECT_THAT(Sweep(), ElementsAre(Name(1)));
}

}  // namespace
}  // namespace gpuctl
