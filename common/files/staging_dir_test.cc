#include "common/files/staging_dir.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

TEST(StagingDir, IsRemovedWithItsOwner) {
  TempDir dir;
  {
    const auto staging = StagingDir::Create(dir.path());
    ASSERT_THAT(staging, IsOk());
    ASSERT_THAT(WriteFileAtomic(JoinPath(staging->path(), "content"), "x"), IsOk());
    EXPECT_EQ(dir.Names().size(), 1u);
  }
  EXPECT_TRUE(dir.Names().empty());
}

#if defined(__linux__)
std::string late_file;
volatile sig_atomic_t late_files = 0;

void WriteLateFile(int /*signal*/) {
  late_files = UniqueFd(open(late_file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)).valid();
}

// The names in a directory are read before the first of them is removed. The kernel tells the
// removing thread itself of that first removal, so what is written then is always too late.
TEST(StagingDir, IsRemovedAlthoughSomethingIsWrittenIntoItMeanwhile) {
  TempDir dir;
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = WriteLateFile;
  action.sa_flags = SA_RESTART;
  ASSERT_EQ(sigaction(SIGIO, &action, &before), 0);
  UniqueFd watch;
  {
    const auto staging = StagingDir::Create(dir.path());
    ASSERT_THAT(staging, IsOk());
    late_file = JoinPath(staging->path(), "late");
    watch.reset(open(staging->path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const struct f_owner_ex owner = {F_OWNER_TID, static_cast<pid_t>(syscall(SYS_gettid))};
    ASSERT_EQ(fcntl(watch.get(), F_SETOWN_EX, &owner), 0);
    ASSERT_EQ(fcntl(watch.get(), F_NOTIFY, DN_DELETE), 0);
  }
  watch.reset();
  sigaction(SIGIO, &before, nullptr);
  EXPECT_EQ(late_files, 1);
  EXPECT_TRUE(dir.Names().empty());
}
#endif

TEST(StagingDir, OneInUseIsLeftAlone) {
  TempDir dir;
  const auto staging = StagingDir::Create(dir.path());
  ASSERT_THAT(staging, IsOk());
  ASSERT_THAT(RemoveAbandonedStaging(dir.path()), IsOk());
  EXPECT_TRUE(IsDirectory(staging->path()));
}

TEST(StagingDir, LeftoversAreRemovedAndNothingElse) {
  TempDir dir;
  dir.Write(".gpuctl-partial-0123/lock", "");
  dir.Write(".gpuctl-partial-0123/tree/file", "content");
  ASSERT_THAT(MakeDirectories(dir.Sub(".gpuctl-partial-4567")), IsOk());  // died before its lock
  dir.Write("other/file", "content");
  ASSERT_THAT(RemoveAbandonedStaging(dir.path()), IsOk());
  EXPECT_EQ(dir.Names(), std::vector<std::string>{"other"});
  EXPECT_THAT(RemoveAbandonedStaging(dir.Sub("missing")), IsOk());
}

TEST(StagingDir, OneThatIsKeptIsTakenOverOnceTheNewestFirst) {
  TempDir dir;
  std::vector<std::string> paths;
  for (const int64_t second : {1'000, 3'000, 2'000}) {
    auto staging = StagingDir::Create(dir.path());
    ASSERT_THAT(staging, IsOk());
    staging->Keep();
    paths.push_back(staging->path());
    const struct timespec times[2] = {{second, 0}, {second, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, paths.back().c_str(), times, 0), 0);
  }
  {
    const auto taken = TakeAbandonedStaging(dir.path());
    ASSERT_THAT(taken, IsOk());
    ASSERT_EQ(taken->size(), 3u);
    EXPECT_EQ((*taken)[0].path(), paths[1]);
    EXPECT_EQ((*taken)[1].path(), paths[2]);
    EXPECT_EQ((*taken)[2].path(), paths[0]);
    EXPECT_TRUE(TakeAbandonedStaging(dir.path())->empty());  // somebody holds them
  }
  EXPECT_TRUE(dir.Names().empty());
}

TEST(StagingDir, OneOfAnotherUserIsNotTakenOver) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files to another user";
  TempDir dir;
  const std::string theirs = dir.Sub(".gpuctl-partial-0123456789abcdef");
  ASSERT_EQ(mkdir(theirs.c_str(), 0700), 0);
  ASSERT_EQ(chown(theirs.c_str(), 65534, 65534), 0);
  const std::string link = dir.Sub(".gpuctl-partial-1123456789abcdef");
  ASSERT_EQ(symlink(theirs.c_str(), link.c_str()), 0);
  const auto taken = TakeAbandonedStaging(dir.path());
  ASSERT_OK(taken);
  EXPECT_TRUE(taken->empty());
  EXPECT_EQ(dir.Names().size(), 2u);
}

TEST(StagingDir, AnotherUsersLockOnTheParentHoldsNobodyUp) {
  TempDir dir;
  const UniqueFd held(open(dir.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(flock(held.get(), LOCK_EX), 0);
  EXPECT_OK(StagingDir::Create(dir.path()));
}

TEST(StagingDir, AHelperKeepsItFromBeingTakenOver) {
  TempDir dir;
  std::string path;
  {
    auto staging = StagingDir::Create(dir.path());
    ASSERT_THAT(staging, IsOk());
    staging->Keep();
    path = staging->path();
  }
  {
    const auto helper = HelpWithStaging(path);
    ASSERT_THAT(helper, IsOk());
    EXPECT_THAT(HelpWithStaging(path), IsOk());  // several helpers are allowed
    EXPECT_TRUE(TakeAbandonedStaging(dir.path())->empty());
    EXPECT_TRUE(IsDirectory(path));
  }
  const auto taken = TakeAbandonedStaging(dir.path());
  ASSERT_THAT(taken, IsOk());
  ASSERT_EQ(taken->size(), 1u);
  EXPECT_THAT(HelpWithStaging(path), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(StagingDir, CreateAndRemoveAtOnceNeverTakeALiveOneAway) {
  TempDir dir;
  std::atomic<bool> done{false};
  std::thread remover([&] {
    while (!done) EXPECT_THAT(RemoveAbandonedStaging(dir.path()), IsOk());
  });
  for (int i = 0; i < 300; ++i) {
    const auto staging = StagingDir::Create(dir.path());
    ASSERT_THAT(staging, IsOk());
    ASSERT_THAT(MakeDirectories(JoinPath(staging->path(), "tree")), IsOk());
    ASSERT_TRUE(IsDirectory(JoinPath(staging->path(), "tree")));
  }
  done = true;
  remover.join();
}

}  // namespace
}  // namespace gpuctl
