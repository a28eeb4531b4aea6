#include "common/metrics/epoch_steps.h"

#include <gtest/gtest.h>

namespace gpuctl {
namespace {

MetricSample Printed(int64_t step, int64_t total = -1, int64_t epoch = -1, int attempt = 1) {
  MetricSample sample;
  sample.step = step;
  if (total > 0) sample.total_steps = total;
  if (epoch >= 0) sample.epoch = static_cast<double>(epoch);
  sample.attempt = attempt;
  return sample;
}

int64_t Whole(EpochSteps& steps, MetricSample sample, StepScope scope = StepScope::kUnknown) {
  steps.Unfold(scope, sample);
  return *sample.step;
}

TEST(EpochStepsTest, CountsOnWhereAnEpochBegins) {
  EpochSteps steps;  // from 0, without totals or epochs
  for (const int step : {0, 100, 200, 300}) EXPECT_EQ(Whole(steps, Printed(step)), step);
  EXPECT_EQ(Whole(steps, Printed(0)), 400);
  EXPECT_EQ(Whole(steps, Printed(100)), 500);
  EpochSteps from_one;
  for (const int step : {100, 200, 300}) EXPECT_EQ(Whole(from_one, Printed(step)), step);
  EXPECT_EQ(Whole(from_one, Printed(100)), 400);
}

TEST(EpochStepsTest, KnowsTotalsAndEpochs) {
  EpochSteps steps;
  EXPECT_EQ(Whole(steps, Printed(900, 950, 0)), 900);
  EXPECT_EQ(Whole(steps, Printed(0, 950, 1)), 950);
  EXPECT_EQ(Whole(steps, Printed(900, 950, 1)), 1850);
  EXPECT_EQ(Whole(steps, Printed(10, 950, 4)), 3810);  // the epochs between were not seen
}

TEST(EpochStepsTest, ANewAttemptIsNoNewEpoch) {
  EpochSteps steps;
  for (const int step : {100, 200, 300}) Whole(steps, Printed(step));
  EXPECT_EQ(Whole(steps, Printed(100, -1, -1, 2)), 100);
}

TEST(EpochStepsTest, ARestartBeforeTheEndIsNoNewEpoch) {
  EpochSteps steps;
  for (const int step : {500, 1000}) Whole(steps, Printed(step, 5000));
  EXPECT_EQ(Whole(steps, Printed(400, 5000)), 400);
}

TEST(EpochStepsTest, LinesOfSeveralProcessesAreNoEpochs) {
  EpochSteps steps;
  for (const int step : {1, 0, 2, 1, 50, 49, 51, 50}) EXPECT_EQ(Whole(steps, Printed(step)), step);
}

TEST(EpochStepsTest, StepsOfTheWholeTrainingStay) {
  EpochSteps steps;
  MetricSample sample = Printed(700, 6000, 2);
  EXPECT_EQ(Whole(steps, Printed(600, 6000, 1), StepScope::kMaybeEpoch), 600);
  EXPECT_EQ(Whole(steps, sample, StepScope::kMaybeEpoch), 700);
}

}  // namespace
}  // namespace gpuctl
