#include "client/batch/batch_results.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gpuctl {
namespace {

TEST(BatchResults, TheBestValueIsFiniteAndTheLastOneNeedNotBe) {
  MetricValues values;
  for (const double value : {2.0, 1.0, 3.0, std::nan("")}) values.Add(value, MetricGoal::kLowest);
  EXPECT_TRUE(std::isnan(*values.last));
  EXPECT_EQ(values.best, 1.0);
  MetricValues diverged;
  diverged.Add(-INFINITY, MetricGoal::kLowest);
  EXPECT_FALSE(diverged.best.has_value());
  EXPECT_EQ(BestRun({diverged, values, MetricValues()}, MetricGoal::kLowest), 1u);
  EXPECT_FALSE(BestRun({diverged, MetricValues()}, MetricGoal::kLowest).has_value());
}

TEST(BatchResults, TheBestValueKnowsItsStep) {
  MetricValues values;
  values.Add(2, MetricGoal::kLowest, 10);
  values.Add(1, MetricGoal::kLowest, 20);
  values.Add(1, MetricGoal::kLowest, 30);
  values.Add(3, MetricGoal::kLowest, 40);
  EXPECT_EQ(values.best_step, 20);
  values.Add(0.5, MetricGoal::kLowest);
  EXPECT_EQ(values.best_step, std::nullopt);
}

TEST(BatchResults, GoalsFollowTheName) {
  EXPECT_EQ(UsualGoal("loss"), MetricGoal::kLowest);
  EXPECT_EQ(UsualGoal("eval/perplexity"), MetricGoal::kLowest);
  EXPECT_EQ(UsualGoal("eval_Accuracy"), MetricGoal::kHighest);
  for (const char* lower : {"ppl", "eval/wer", "val_error_rate", "score_loss", "lr", "grad_norm"}) {
    EXPECT_EQ(UsualGoal(lower), MetricGoal::kLowest) << lower;
  }
  for (const char* higher :
       {"mAP", "map50", "top1", "pass@1", "hit_rate", "tokens_per_s", "elo", "win_rate"}) {
    EXPECT_EQ(UsualGoal(higher), MetricGoal::kHighest) << higher;
  }
  for (const char* unknown :
       {"x", "alpha", "heat", "mapping", "trimmed", "window", "architecture_size"}) {
    EXPECT_FALSE(UsualGoal(unknown).has_value()) << unknown;
  }
  MetricValues low, high;
  low.Add(0.1, MetricGoal::kHighest);
  high.Add(0.9, MetricGoal::kHighest);
  EXPECT_EQ(BestRun({low, high}, MetricGoal::kHighest), 1u);
}

TEST(BatchResults, AMetricMayLieInAnObjectBelow) {
  EXPECT_EQ(MetricInJson(R"({"accuracy":0.5})", "accuracy"), 0.5);
  EXPECT_EQ(MetricInJson(R"({"eval":{"f1":0.25}})", "eval/f1"), 0.25);
  EXPECT_EQ(MetricInJson(R"({"eval/f1":0.5})", "eval/f1"), 0.5);
  for (const char* line :
       {"", "f1", R"({"f1":"x"})", R"({"eval":{"other":1}})", R"([1])", R"({"eval":1})", "\xff{"}) {
    EXPECT_FALSE(MetricInJson(line, "eval/f1").has_value()) << line;
  }
}

TEST(BatchResults, CsvCellsAreQuotedWhereNeeded) {
  EXPECT_EQ(CsvCell("a b"), "a b");
  EXPECT_EQ(CsvCell("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
}

}  // namespace
}  // namespace gpuctl
