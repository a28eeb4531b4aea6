#include "trainer/train/batch_ahead.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

namespace gpuctl::trainer {
namespace {

Batch NumberedBatch(int64_t first) {
  Batch batch = MakeBatch(2, 3, /*packed=*/false, [&](int64_t row, const WindowSlot& slot) {
    for (int64_t t = 0; t < 3; ++t) slot.inputs[t] = slot.targets[t] = first + row;
    return int64_t{3};
  });
  batch.first_window = first;
  return batch;
}

TEST(BatchAheadTest, GivesEachBatchInItsTurn) {
  for (const bool ahead : {false, true}) {
    std::atomic<bool> elsewhere{false};
    BatchAhead batches(
        [&, here = std::this_thread::get_id()](int64_t first) {
          if (std::this_thread::get_id() != here) elsewhere = true;
          return NumberedBatch(first);
        },
        ahead);
    for (int64_t first = 4; first < 20; first += 2) {
      const Batch batch = batches.Take(first, first + 2);
      EXPECT_EQ(batch.first_window, first);
      EXPECT_EQ(batch.scored, 6);
      EXPECT_EQ(batch.inputs_bt[1][2].item<int64_t>(), first + 1);
    }
    EXPECT_EQ(batches.Take(100, 102).first_window, 100) << "not the one that was prepared";
    EXPECT_EQ(batches.Take(102, 104).first_window, 102);
    EXPECT_EQ(elsewhere, ahead);
  }
}

TEST(BatchAheadTest, AnErrorOfALaterBatchIsThrownInItsTurn) {
  for (const bool ahead : {false, true}) {
    BatchAhead batches(
        [](int64_t first) {
          if (first == 4) throw std::runtime_error("window 4");
          return NumberedBatch(first);
        },
        ahead);
    EXPECT_EQ(batches.Take(0, 2).first_window, 0);
    EXPECT_EQ(batches.Take(2, 4).first_window, 2);
    EXPECT_THROW(batches.Take(4, 6), std::runtime_error);
    EXPECT_THROW(batches.Take(4, 6), std::runtime_error);
  }
}

}  // namespace
}  // namespace gpuctl::trainer
