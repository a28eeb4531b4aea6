#include "common/files/file_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

TEST(FileLockTest, ARemovedLockIsNobodysAndIsTold) {
  TempDir dir;
  const std::string path = dir.Sub("lock");
  absl::StatusOr<UniqueFd> lock = TryRemovableLock(path);
  ASSERT_OK(lock);
  EXPECT_TRUE(absl::IsUnavailable(TryRemovableLock(path).status()));
  EXPECT_FALSE(IsRemoved(*lock));
  ASSERT_EQ(unlink(path.c_str()), 0);
  EXPECT_TRUE(IsRemoved(*lock));
  EXPECT_FALSE(IsReplaced(*lock, path));
  // The next one's file is not the first one's to remove.
  absl::StatusOr<UniqueFd> next = TryRemovableLock(path);
  ASSERT_OK(next);
  EXPECT_TRUE(IsReplaced(*lock, path));
  RemoveLock(*std::move(lock), path);
  EXPECT_FALSE(IsRemoved(*next));
  RemoveLock(*std::move(next), path);
  EXPECT_FALSE(PathExists(path));
}

TEST(FileLockTest, NobodyElseHasALockWhoseHoldersRemoveIt) {
  TempDir dir;
  const std::string path = dir.Sub("lock");
  std::atomic<int> holders = 0, most = 0, taken = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (taken < 2000) {
        absl::StatusOr<UniqueFd> lock = TryRemovableLock(path);
        if (!lock.ok()) continue;
        ++taken;
        most = std::max(most.load(), ++holders);
        --holders;
        RemoveLock(*std::move(lock), path);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 1);
}

}  // namespace
}  // namespace gpuctl
