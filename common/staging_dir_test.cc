#include "common/staging_dir.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

#include "common/file_lock.h"
#include "common/files.h"
#include "tests/matchers.h"
#include "tests/temp_dir.h"

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
