#include "trainer/prepare/ordered_turns.h"

#include <gtest/gtest.h>

#include <vector>

#include "trainer/prepare/pipeline.h"
#include "trainer/tests/expect_error.h"

namespace gpuctl::trainer {
namespace {

struct Number {
  int value = 0;
  size_t bytes = 0;
};

// Takes 0 to 999; `bytes` is what each one holds.
std::vector<int> TakenBy(int64_t threads, size_t bytes, int failing, int stopping) {
  int next = 0;
  std::vector<int> taken;
  Pipeline<Number, int> pipeline;
  pipeline.next = [&](Number* number) {
    if (next == 1000) return false;
    *number = {next++, bytes};
    return true;
  };
  pipeline.work = [&](const Number& number) {
    if (failing >= 0 && number.value >= failing) {
      throw DataError("failed at " + std::to_string(number.value));
    }
    return 2 * number.value;
  };
  pipeline.take = [&](const int& doubled) { taken.push_back(doubled / 2); };
  pipeline.stop = [&] { return stopping >= 0 && static_cast<int>(taken.size()) == stopping; };
  pipeline.Run(threads);
  return taken;
}

TEST(PipelineTest, ResultsComeInOrder) {
  std::vector<int> all(1000);
  for (int i = 0; i < 1000; ++i) all[static_cast<size_t>(i)] = i;
  for (const int64_t threads : {1, 2, 9}) {
    EXPECT_EQ(TakenBy(threads, 1, -1, -1), all);
    EXPECT_EQ(TakenBy(threads, 2 * kBytesInWork, -1, -1), all) << "one at a time";
  }
}

TEST(PipelineTest, TheFirstFailureIsThrown) {
  for (const int64_t threads : {1, 2, 9}) {
    EXPECT_ERROR(TakenBy(threads, 1, 77, -1), ExitCode::kBadData, "failed at 77");
    EXPECT_ERROR(TakenBy(threads, kBytesInWork, 0, -1), ExitCode::kBadData, "failed at 0");
  }
}

TEST(PipelineTest, FailuresOfReadingAndTakingAreThrown) {
  Pipeline<Number, int> pipeline;
  pipeline.next = [](Number*) -> bool { throw DataError("no reading"); };
  pipeline.work = [](const Number&) { return 0; };
  pipeline.take = [](const int&) { throw DataError("no taking"); };
  pipeline.stop = [] { return false; };
  EXPECT_ERROR(pipeline.Run(3), ExitCode::kBadData, "no reading");
  pipeline.next = [](Number*) { return true; };
  EXPECT_ERROR(pipeline.Run(3), ExitCode::kBadData, "no taking");
}

TEST(PipelineTest, StopEndsIt) { EXPECT_EQ(TakenBy(1, 1, -1, 5).size(), 5u); }

}  // namespace
}  // namespace gpuctl::trainer
