#include "common/files/background_sync.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace gpuctl {
namespace {

TEST(BackgroundSync, SyncsOnceEnoughWasWrittenAndThenTwiceAsMuch) {
  std::promise<void> first;
  std::promise<void> second;
  std::atomic<int> syncs{0};
  BackgroundSync background(
      [&] {
        (++syncs == 1 ? first : second).set_value();
        return syncs < 2;
      },
      100);
  for (int i = 0; i < 99; ++i) background.Wrote(1);
  EXPECT_EQ(syncs, 0);
  background.Wrote(1);
  first.get_future().wait();
  for (int i = 0; i < 199; ++i) background.Wrote(1);
  EXPECT_EQ(syncs, 1);
  background.Wrote(1);
  second.get_future().wait();
  EXPECT_EQ(syncs, 2);
}

TEST(BackgroundSync, DoesNotHoldTheWriterAndEndsWithTheSyncThatRuns) {
  std::promise<void> entered;
  std::promise<void> leave;
  std::atomic<int> begun{0};
  std::atomic<int> ended{0};
  {
    BackgroundSync background(
        [&] {
          if (++begun > 1) return true;
          entered.set_value();
          leave.get_future().wait();
          ++ended;
          return true;
        },
        10);
    background.Wrote(10);
    entered.get_future().wait();
    background.Wrote(20);  // does not wait for the sync
    EXPECT_EQ(ended, 0);
    leave.set_value();
  }
  EXPECT_EQ(ended, 1);
}

TEST(BackgroundSync, IsNotTriedAgainOnceItFailed) {
  std::atomic<int> syncs{0};
  std::promise<void> failed;
  {
    BackgroundSync background(
        [&] {
          if (++syncs == 1) failed.set_value();
          return false;
        },
        1);
    background.Wrote(1);
    failed.get_future().wait();
    for (int i = 0; i < 100; ++i) background.Wrote(1);
  }
  EXPECT_EQ(syncs, 1);
}

}  // namespace
}  // namespace gpuctl
