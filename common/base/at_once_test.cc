#include "common/base/at_once.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/mutex.h"

namespace gpuctl {
namespace {

TEST(AtOnce, WaitsForSeveralTogetherAndForNoMoreThanAsked) {
  Mutex mutex;
  CondVar changed;
  int inside = 0, most = 0;
  std::vector<int> calls(10);
  ForEachAtOnce(calls.size(), 3, [&](size_t i) {
    MutexLock lock(mutex);
    ++calls[i];
    most = std::max(most, ++inside);
    changed.NotifyAll();
    // The first calls wait until the allowed number of calls run.
    while (most < 3) changed.Wait(mutex);
    --inside;
  });
  EXPECT_EQ(most, 3);
  EXPECT_THAT(calls, ::testing::Each(1));
}

TEST(AtOnce, OfNothingIsNothing) {
  ForEachAtOnce(0, 3, [](size_t) { FAIL(); });
  int calls = 0;
  ForEachAtOnce(1, 8, [&](size_t) { ++calls; });
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace gpuctl
