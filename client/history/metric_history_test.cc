#include "client/history/metric_history.h"

#include <gtest/gtest.h>

#include <limits>

namespace gpuctl {
namespace {

MetricSample Trained(int64_t step, double loss, int64_t time_ms = 0, int attempt = 1) {
  MetricSample sample;
  sample.step = step;
  sample.loss = loss;
  sample.time_ms = time_ms;
  sample.attempt = attempt;
  return sample;
}

MetricSample Evaluation(int64_t step, double loss) {
  MetricSample sample;
  sample.step = step;
  sample.eval_loss = loss;
  return sample;
}

TEST(MetricHistoryTest, LinesOfOneStepJoin) {
  MetricHistory history;
  history.Add(Trained(10, 2.5, 1000));
  MetricSample rate;
  rate.step = 10;
  rate.learning_rate = 1e-4;
  rate.time_ms = 1100;
  history.Add(rate);
  history.Add(Evaluation(10, 2.75));
  MetricSample speed;  // a line without a step is about the newest one
  speed.tokens_per_s = 900;
  history.Add(speed);
  ASSERT_EQ(history.points().size(), 1u);
  const HistoryPoint& point = history.points()[0];
  EXPECT_EQ(point.step, 10);
  EXPECT_EQ(point.time_ms, 1100);
  EXPECT_EQ(point.loss, 2.5);
  EXPECT_EQ(point.eval_loss, 2.75);
  EXPECT_EQ(point.learning_rate, 1e-4);
  EXPECT_EQ(point.tokens_per_s, 900);
  EXPECT_FALSE(point.epoch.has_value());
}

TEST(MetricHistoryTest, AResumedAttemptReplacesTheLostSteps) {
  MetricHistory history;
  for (int i = 1; i <= 10; ++i) history.Add(Trained(i, 5, 1000 * i));
  history.Add(Evaluation(10, 6));
  for (int i = 6; i <= 8; ++i) history.Add(Trained(i, 2, 60'000 + i, 2));
  ASSERT_EQ(history.points().size(), 8u);
  EXPECT_EQ(history.points()[4].loss, 5);
  EXPECT_EQ(history.points()[5].loss, 2);
  EXPECT_FALSE(history.points().back().eval_loss.has_value());
}

TEST(MetricHistoryTest, ALateEvaluationTakesNoStepsAway) {
  MetricHistory history;
  for (int i = 1; i <= 10; ++i) history.Add(Trained(2 * i, 1));
  history.Add(Evaluation(4, 3));
  history.Add(Evaluation(5, 4));
  ASSERT_EQ(history.points().size(), 11u);
  EXPECT_EQ(history.points()[1].eval_loss, 3);
  EXPECT_EQ(history.points()[1].loss, 1);
  EXPECT_EQ(history.points()[2].step, 5);
  EXPECT_EQ(history.points()[2].eval_loss, 4);
}

TEST(MetricHistoryTest, LinesWithoutStepsAreCounted) {
  MetricHistory history;
  MetricSample sample;
  sample.learning_rate = 1;
  history.Add(sample);  // of no step yet
  EXPECT_TRUE(history.points().empty());
  sample = MetricSample();
  for (const double loss : {3.0, 2.0, 1.0}) {
    sample.loss = loss;
    history.Add(sample);
  }
  ASSERT_EQ(history.points().size(), 3u);
  EXPECT_EQ(history.points()[2].step, 2);
}

TEST(MetricHistoryTest, WhatIsNoNumberMakesNoPoint) {
  MetricHistory history;
  MetricSample bar;
  bar.step = 7;
  bar.total_steps = 10;
  history.Add(bar);
  MetricSample checkpoint = Trained(8, 1);
  checkpoint.checkpoint = true;
  history.Add(checkpoint);
  EXPECT_TRUE(history.points().empty());
}

TEST(MetricHistoryTest, AnOverlongHistoryKeepsItsWholeLengthAndItsEvaluations) {
  MetricHistory history(1000);
  for (int i = 1; i <= 20'000; ++i) {
    history.Add(Trained(i, 1));
    if (i % 1000 == 0) history.Add(Evaluation(i, 2));
  }
  EXPECT_TRUE(history.thinned());
  EXPECT_LE(history.points().size(), 1001u);
  EXPECT_GT(history.points().size(), 300u);
  EXPECT_EQ(history.points().front().step, 1);
  EXPECT_EQ(history.points().back().step, 20'000);
  int evaluations = 0;
  for (const HistoryPoint& point : history.points()) evaluations += point.eval_loss ? 1 : 0;
  EXPECT_EQ(evaluations, 20);
}

TEST(MetricHistoryTest, OddNumbersAreNoTimesAndNoEnd) {
  MetricHistory history;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  history.Add(Trained(kMost, 1, kMost));
  MetricSample next;
  next.loss = 2;
  history.Add(next);
  ASSERT_EQ(history.points().size(), 1u);
  EXPECT_EQ(history.points()[0].time_ms, 0);
  EXPECT_EQ(history.points()[0].loss, 2);
}

// A hostile node's lines must not take time without end.
TEST(MetricHistoryTest, EvaluationsBackwardsEndSoon) {
  MetricHistory history;
  for (int i = 300'000; i > 0; --i) history.Add(Evaluation(i, 2));
  EXPECT_LE(history.points().size(), 5000u);
}

}  // namespace
}  // namespace gpuctl
