#include "trainer/linear/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace gpuctl::trainer {
namespace {

// Runs `work` with that many helpers.
void LeadWith(int helpers, const std::function<void()>& work) {
  ThreadGroup group(helpers);
  std::vector<std::thread> threads;
  for (int i = 0; i < helpers; ++i) threads.emplace_back([&] { group.Help(); });
  try {
    group.Lead(work);
  } catch (...) {
    for (std::thread& thread : threads) thread.join();
    throw;
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ThreadsTest, EveryPieceRunsOnce) {
  for (const int helpers : {0, 1, 3}) {
    LeadWith(helpers, [] {
      for (const int64_t pieces : {0, 1, 2, 7, 100}) {
        for (int round = 0; round < 50; ++round) {
          std::vector<std::atomic<int>> calls(static_cast<size_t>(pieces));
          ForPieces(pieces, [&](int64_t piece) { ++calls[static_cast<size_t>(piece)]; });
          for (const std::atomic<int>& count : calls) ASSERT_EQ(count, 1);
        }
      }
    });
  }
}

TEST(ThreadsTest, HelpersTakePartAndPiecesInsideOfPiecesStayOnTheirThread) {
  std::atomic<int> arrived{0};
  std::set<std::thread::id> outer, inner;
  std::mutex mutex;
  LeadWith(2, [&] {
    ForPieces(3, [&](int64_t) {
      // Each piece waits for the others, so three threads must be there.
      ++arrived;
      while (arrived < 3) std::this_thread::yield();
      ForPieces(4, [&](int64_t) {
        const std::lock_guard<std::mutex> lock(mutex);
        inner.insert(std::this_thread::get_id());
      });
      const std::lock_guard<std::mutex> lock(mutex);
      outer.insert(std::this_thread::get_id());
    });
  });
  EXPECT_EQ(outer.size(), 3u);
  EXPECT_EQ(inner, outer);
}

TEST(ThreadsTest, ALeaderKnowsHowManyShareItsPieces) {
  EXPECT_EQ(SharingThreads(), 1);
  LeadWith(3, [] {
    EXPECT_EQ(SharingThreads(), 4);
    ForPieces(2, [](int64_t) { EXPECT_EQ(SharingThreads(), 1); });
    EXPECT_EQ(SharingThreads(), 4);
  });
  EXPECT_EQ(SharingThreads(), 1);
}

TEST(ThreadsTest, TheFailureOfTheLowestPieceIsPassedOnAndTheGroupGoesOn) {
  for (const int helpers : {0, 2}) {
    int calls = 0;
    EXPECT_THROW(LeadWith(helpers,
                          [&] {
                            try {
                              ForPieces(10, [](int64_t piece) {
                                if (piece >= 4) throw std::runtime_error(std::to_string(piece));
                              });
                            } catch (const std::runtime_error& error) {
                              EXPECT_STREQ(error.what(), "4");
                              ForPieces(1, [&](int64_t) { ++calls; });
                            }
                            throw std::logic_error("of the leader");
                          }),
                 std::logic_error);
    EXPECT_EQ(calls, 1);
  }
}

TEST(ThreadsTest, RangesCoverTheirCount) {
  for (const int64_t grain : {1, 16, 100}) {
    for (const int64_t count : {0, 1, 15, 16, 17, 1000, 12345}) {
      EXPECT_LE(RangesOf(count, grain), kMostPieces);
      int64_t next = 0;
      ForRanges(count, grain, [&](int64_t begin, int64_t end) {
        EXPECT_EQ(begin, next);
        EXPECT_EQ(begin % grain, 0);
        EXPECT_TRUE(end > begin || count == 0);
        next = end;
      });
      EXPECT_EQ(next, count);
    }
  }
}

}  // namespace
}  // namespace gpuctl::trainer
