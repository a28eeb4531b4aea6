#include "common/metrics/metric_lines.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/metrics/output_metrics.h"

namespace gpuctl {
namespace {

TEST(ParseMetricLineTest, ReadsTrainersDictLines) {
  const auto old_form = ParseMetricLine(
      "{'loss': 2.3456, 'grad_norm': 1.25, 'learning_rate': 4.9e-05, 'epoch': 0.02}");
  ASSERT_TRUE(old_form.has_value());
  EXPECT_DOUBLE_EQ(*old_form->loss, 2.3456);
  EXPECT_DOUBLE_EQ(*old_form->learning_rate, 4.9e-5);
  EXPECT_DOUBLE_EQ(*old_form->epoch, 0.02);
  const auto new_form = ParseMetricLine(
      "{'loss': '0.5', 'grad_norm': '1.2', 'learning_rate': '1e-05', 'epoch': '1'}");
  ASSERT_TRUE(new_form.has_value());
  EXPECT_DOUBLE_EQ(*new_form->loss, 0.5);
  EXPECT_DOUBLE_EQ(*new_form->grad_norm, 1.2);
  const auto eval = ParseMetricLine("{'eval_loss': 1.5, 'eval_runtime': 3.2, 'epoch': 1.0}");
  ASSERT_TRUE(eval.has_value());
  EXPECT_DOUBLE_EQ(*eval->eval_loss, 1.5);
  EXPECT_FALSE(eval->loss.has_value());
}

TEST(ParseMetricLineTest, ReadsJsonLines) {
  const auto sample = ParseMetricLine(R"(  {"step": 12, "loss": 0.25, "lr": 0.001, "note": "x"} )");
  ASSERT_TRUE(sample.has_value());
  EXPECT_EQ(*sample->step, 12);
  EXPECT_DOUBLE_EQ(*sample->loss, 0.25);
}

TEST(ParseMetricLineTest, ReadsWords) {
  auto sample = ParseMetricLine("step=10/200 loss=0.5 lr=1e-3 tok/s=1200");
  ASSERT_TRUE(sample.has_value());
  EXPECT_EQ(*sample->step, 10);
  EXPECT_EQ(*sample->total_steps, 200);
  EXPECT_DOUBLE_EQ(*sample->tokens_per_s, 1200);
  sample = ParseMetricLine("iter 250: loss 2.1034, time 12.5ms, mfu 3.2%");
  ASSERT_TRUE(sample.has_value());
  EXPECT_EQ(*sample->step, 250);
  EXPECT_DOUBLE_EQ(*sample->loss, 2.1034);
  sample = ParseMetricLine("step 500: train loss 1.2, val loss 1.3");
  ASSERT_TRUE(sample.has_value());
  EXPECT_DOUBLE_EQ(*sample->loss, 1.2);
  EXPECT_DOUBLE_EQ(*sample->eval_loss, 1.3);
  sample = ParseMetricLine("Epoch: 3 | Step: 40 | Loss: 0.75");
  ASSERT_TRUE(sample.has_value());
  EXPECT_EQ(*sample->step, 40);
  EXPECT_DOUBLE_EQ(*sample->loss, 0.75);
}

TEST(ParseMetricLineTest, ReadsCommasInNumbers) {
  auto sample = ParseMetricLine("step 5,000/10,000 | loss 3.0 | lr 2,5e-05");
  ASSERT_TRUE(sample.has_value());
  EXPECT_EQ(sample->step, 5000);
  EXPECT_EQ(sample->total_steps, 10000);
  EXPECT_EQ(sample->loss, 3.0);
  EXPECT_EQ(sample->learning_rate, 2.5e-5);
  sample = ParseMetricLine("step=1,234,567/ 2,000,000 loss: 12,341.60");
  ASSERT_TRUE(sample.has_value());
  EXPECT_EQ(sample->step, 1234567);
  EXPECT_EQ(sample->total_steps, 2000000);
  EXPECT_EQ(sample->loss, 12341.6);
  EXPECT_EQ(ParseMetricLine("step=7,loss: 2,9")->loss, 2.9);
  EXPECT_EQ(ParseMetricLine("step=7,loss=2,9,step=8")->step, 8);
  // No number is before the first comma.
  EXPECT_EQ(ParseMetricLine("Train: 3 [,5/10]"), std::nullopt);
  // Lists give their first number.
  sample = ParseMetricLine("step=10,20 lr=[1e-05,2e-05], loss=0.5,0.25 tps=1,2,3");
  ASSERT_TRUE(sample.has_value());
  EXPECT_EQ(sample->step, 10);
  EXPECT_EQ(sample->learning_rate, 1e-5);
  EXPECT_EQ(sample->loss, 0.5);
  EXPECT_EQ(sample->tokens_per_s, 1);
}

TEST(ParseMetricLineTest, TheBestOfEarlierStepsIsNotThePresent) {
  for (const char* line : {"Best val loss: 3.667 at step 400", "Best epoch: 4, val_loss: 2.433",
                           "Best model: step 300, loss 3.8", "INFO:root:Best loss: 3.8 at step 300",
                           "2024-05-01 10:00:00,123 lowest loss 3.8 (step 300)"}) {
    EXPECT_FALSE(ParseMetricLine(line).has_value()) << line;
  }
  auto sample = ParseMetricLine("New best val loss: 2.25 at step 400");
  ASSERT_TRUE(sample.has_value());
  EXPECT_EQ(sample->step, 400);
  EXPECT_EQ(sample->eval_loss, 2.25);
  sample = ParseMetricLine("step 500: loss 2.1, best loss 1.9, lr 0.1");
  ASSERT_TRUE(sample.has_value());
  EXPECT_EQ(sample->loss, 2.1);
  EXPECT_EQ(sample->learning_rate, 0.1);
}

TEST(ParseMetricLineTest, ReadsProgressBars) {
  const auto sample = ParseMetricLine(
      " 42%|\xE2\x96\x88\xE2\x96\x88   | 84/200 [00:10<00:14, 8.10it/s, loss=0.31]");
  ASSERT_TRUE(sample.has_value());
  EXPECT_EQ(*sample->step, 84);
  EXPECT_EQ(*sample->total_steps, 200);
  EXPECT_DOUBLE_EQ(*sample->loss, 0.31);
}

TEST(ParseMetricLineTest, LeavesProseAlone) {
  for (const char* line : {"", "step 3 of the installation", "we are at a loss for words", "loss",
                           "loss:", "{}", "{'a': }", "loss=abc", "100% | done", "%|",
                           "Epoch 3 begins", "{\"loss\": [1]}", "[1, 2]", "50%|#| x/y [a]"}) {
    EXPECT_FALSE(ParseMetricLine(line).has_value()) << line;
  }
  EXPECT_FALSE(ParseMetricLine("loss=1 " + std::string(70'000, 'x')).has_value());
}

TEST(ParseMetricsJsonTest, ReadsTheStampAndTheTypes) {
  auto sample = ParseMetricsJson(
      R"({"gpuctl":{"attempt":2,"output_offset":10,"time_ms":1700},"type":"step","step":3,)"
      R"("total_steps":9,"loss":1.5,"lr":0.1,"grad_norm":2,"tokens_per_s":100})");
  ASSERT_TRUE(sample.has_value());
  EXPECT_EQ(sample->attempt, 2);
  EXPECT_EQ(sample->time_ms, 1700);
  EXPECT_EQ(*sample->total_steps, 9);
  sample = ParseMetricsJson(R"({"type":"eval","step":3,"loss":1.25,"bigram_entropy":2})");
  ASSERT_TRUE(sample.has_value());
  EXPECT_DOUBLE_EQ(*sample->eval_loss, 1.25);
  EXPECT_FALSE(sample->loss.has_value());
  sample = ParseMetricsJson(R"({"type":"checkpoint","step":100,"path":"ckpt/step-100"})");
  ASSERT_TRUE(sample.has_value());
  EXPECT_TRUE(sample->checkpoint);
  EXPECT_FALSE(ParseMetricsJson("{\"type\":\"step\",").has_value());
  EXPECT_FALSE(ParseMetricsJson("[]").has_value());
}

TEST(ParseMetricsJsonTest, ReadsNumbersThatAreNotFinite) {
  // What Python's json.dumps writes; the shim keeps it as text, because it is no JSON.
  const auto sample = ParseMetricsJson(
      R"({"gpuctl":{"attempt":2,"time_ms":5},"text":"{\"step\": 7, \"loss\": NaN, \"why\": \"a NaN\"}"})");
  ASSERT_TRUE(sample.has_value());
  EXPECT_EQ(sample->step, 7);
  EXPECT_EQ(sample->attempt, 2);
  EXPECT_EQ(sample->time_ms, 5);
  ASSERT_TRUE(sample->loss.has_value());
  EXPECT_TRUE(std::isnan(*sample->loss));

  const auto printed = ParseMetricLine(R"({"loss": -Infinity, "eval_loss": Infinity})");
  ASSERT_TRUE(printed.has_value());
  EXPECT_EQ(printed->loss, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(printed->eval_loss, std::numeric_limits<double>::infinity());
  const auto dict = ParseMetricLine("{'loss': nan, 'epoch': 1.0}");
  ASSERT_TRUE(dict.has_value());
  EXPECT_TRUE(std::isnan(*dict->loss));

  EXPECT_FALSE(ParseMetricLine(R"({"loss": "NaN, or so"})").has_value());
  EXPECT_FALSE(ParseMetricLine(R"({"a\)").has_value());
  EXPECT_FALSE(ParseMetricsJson(R"({"gpuctl":{},"text":"nothing to read"})").has_value());
}

TEST(OutputMetricsTest, JoinsBarsAndDictLines) {
  OutputMetrics metrics;
  const auto sample =
      metrics.Add("  5%|5    | 10/200 [00:01<00:20,  9.5it/s]\r{'loss': 0.5, 'epoch': 0.1}");
  ASSERT_TRUE(sample.has_value());
  EXPECT_EQ(*sample->step, 10);
  EXPECT_EQ(*sample->total_steps, 200);
  EXPECT_DOUBLE_EQ(*sample->loss, 0.5);
  const auto later = metrics.Add("{'loss': 0.4, 'epoch': 0.1}");
  ASSERT_TRUE(later.has_value());
  EXPECT_EQ(*later->step, 10);
}

}  // namespace
}  // namespace gpuctl
