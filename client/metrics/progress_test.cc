#include "client/metrics/progress.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace gpuctl {
namespace {

MetricSample Step(int64_t step, double loss, int64_t time_ms, int attempt = 1) {
  MetricSample sample;
  sample.step = step;
  sample.total_steps = 100;
  sample.loss = loss;
  sample.time_ms = time_ms;
  sample.attempt = attempt;
  return sample;
}

TEST(TrainingProgressTest, FollowsStepsAndGuessesTheEnd) {
  TrainingProgress progress;
  EXPECT_TRUE(progress.empty());
  for (int i = 1; i <= 20; ++i) progress.Add(Step(i, 3.0 - i * 0.1, 1000 * i));
  EXPECT_EQ(progress.step(), 20);
  EXPECT_EQ(progress.total_steps(), 100);
  EXPECT_EQ(progress.losses().size(), 20u);
  ASSERT_TRUE(progress.Eta().has_value());
  EXPECT_EQ(*progress.Eta(), absl::Seconds(80));
}

TEST(TrainingProgressTest, ResumedStepsReplaceLostOnes) {
  TrainingProgress progress;
  for (int i = 1; i <= 10; ++i) progress.Add(Step(i, 5, 1000 * i));
  for (int i = 6; i <= 8; ++i) progress.Add(Step(i, 2, 60'000 + 1000 * i, 2));
  EXPECT_EQ(progress.step(), 8);
  ASSERT_EQ(progress.losses().size(), 8u);
  EXPECT_DOUBLE_EQ(progress.losses()[4].y, 5);
  EXPECT_DOUBLE_EQ(progress.losses()[5].y, 2);
  // The pause between the attempts does not count.
  EXPECT_EQ(*progress.Eta(), absl::Seconds(92));
}

TEST(TrainingProgressTest, StaysSmall) {
  TrainingProgress progress;
  for (int i = 0; i < 100'000; ++i) progress.Add(Step(i, 1, i));
  EXPECT_LT(progress.losses().size(), 9000u);
  EXPECT_EQ(progress.losses().back().x, 99'999);
}

TEST(TrainingProgressTest, TheCurveOfALongRunHasItsWholeLength) {
  TrainingProgress progress;
  MetricSample sample;
  for (int step = 10; step <= 1'000'000; step += 10) {
    sample.step = step;
    sample.loss = 4.0 - step * 1e-6;
    progress.Add(sample);
  }
  const std::vector<PlotPoint>& losses = progress.losses();
  ASSERT_GT(losses.size(), 1000u);
  EXPECT_EQ(losses.front().x, 10);
  EXPECT_EQ(losses.back().x, 1'000'000);
  double widest = 0;
  for (size_t i = 1; i < losses.size(); ++i) {
    widest = std::max(widest, losses[i].x - losses[i - 1].x);
  }
  EXPECT_LE(widest, 1000);  // a thousandth of the curve
}

TEST(TrainingProgressTest, KeepsCheckpointsAndEvaluations) {
  TrainingProgress progress;
  progress.Add(Step(5, 1, 1));
  MetricSample checkpoint;
  checkpoint.step = 5;
  checkpoint.checkpoint = true;
  progress.Add(checkpoint);
  MetricSample eval;
  eval.eval_loss = 0.75;
  progress.Add(eval);
  EXPECT_EQ(progress.checkpoint_step(), 5);
  ASSERT_EQ(progress.eval_losses().size(), 1u);
  EXPECT_DOUBLE_EQ(progress.eval_losses()[0].x, 5);
}

TEST(ParseTelemetryTest, TakesWhatIsThere) {
  const auto sample = ParseTelemetry(
      R"({"time_ms":5,"cpu_percent":12.5,"gpus":[{"utilization_percent":97,"power_w":500}]})");
  ASSERT_TRUE(sample.has_value());
  EXPECT_DOUBLE_EQ(*sample->cpu_percent, 12.5);
  ASSERT_EQ(sample->gpus.size(), 1u);
  EXPECT_DOUBLE_EQ(*sample->gpus[0].power_w, 500);
  EXPECT_FALSE(sample->gpus[0].temperature_c.has_value());
  EXPECT_FALSE(ParseTelemetry("{").has_value());
}

}  // namespace
}  // namespace gpuctl
