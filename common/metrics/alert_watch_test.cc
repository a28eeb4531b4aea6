// When a training is stopped by its own numbers, and when not.
#include "common/metrics/alert_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();

MetricSample Loss(int64_t step, double loss) {
  MetricSample sample;
  sample.step = step;
  sample.loss = loss;
  return sample;
}

std::string Why(const std::string& condition, const std::vector<double>& losses) {
  AlertWatch watch({ParseStopCondition(condition).value()}, {});
  int64_t step = 0;
  for (const double loss : losses) {
    if (const auto why = watch.Add(Loss(++step, loss))) return *why;
  }
  return "";
}

std::string WhyFlat(Plateau plateau, const std::vector<double>& losses) {
  AlertWatch watch({}, {plateau});
  int64_t step = 0;
  for (const double loss : losses) {
    if (const auto why = watch.Add(Loss(++step, loss))) return *why;
  }
  return "";
}

TEST(AlertWatch, StopsWhenTheConditionHolds) {
  EXPECT_EQ(Why("loss is nan", {1, kInf, std::nan(""), 2}), "loss is nan at step 3");
  EXPECT_EQ(Why("loss is inf", {1, std::nan(""), -kInf}), "loss is inf at step 3");
  EXPECT_EQ(Why("Loss  is not finite", {1, kInf}), "loss is not finite at step 2");
  EXPECT_EQ(Why("loss>20", {20, 20.5}), "loss > 20 at step 2");
  EXPECT_EQ(Why("loss >= 2e1", {19, 20}), "loss >= 2e1 at step 2");
  EXPECT_EQ(Why("loss < 0", {0, -1}), "loss < 0 at step 2");
  EXPECT_EQ(Why("loss > 20", {1, std::nan(""), 3}), "");
  EXPECT_EQ(Why("eval_loss > 0", {1, 2}), "");
}

TEST(AlertWatch, StopsWhenNothingFalls) {
  EXPECT_EQ(WhyFlat({"loss", 3, 0}, {5, 4, 4, 4.5, 4}),
            "loss has not fallen for 3 steps at step 5");
  EXPECT_EQ(WhyFlat({"loss", 3, 0}, {5, 4, 4, 3, 4, 4, 2, 2}), "");
  EXPECT_EQ(WhyFlat({"loss", 3, 0.5}, {5, 4.9, 4.8, 4.7}),
            "loss has not fallen for 3 steps at step 4");
  // NaN is no fall, and a beginning with it is no reason to take it for the best.
  EXPECT_EQ(WhyFlat({"loss", 3, 0}, {std::nan(""), 5, 4, 3, 2, 1}), "");
  EXPECT_EQ(WhyFlat({"loss", 3, 0}, {5, std::nan(""), std::nan(""), std::nan("")}),
            "loss has not fallen for 3 steps at step 4");
  EXPECT_EQ(WhyFlat({"loss", 3, 0}, std::vector<double>(4, std::nan(""))),
            "loss has not fallen for 3 steps at step 4");
}

TEST(AlertWatch, StepsMayBeMissingOrBeginAgain) {
  AlertWatch watch({}, {{"loss", 2, 0}});
  MetricSample sample;
  sample.loss = 1;
  EXPECT_FALSE(watch.Add(sample).has_value());
  EXPECT_FALSE(watch.Add(sample).has_value());
  EXPECT_TRUE(watch.Add(sample).has_value());
  AlertWatch again({}, {{"loss", 5, 0}});
  EXPECT_FALSE(again.Add(Loss(100, 1)).has_value());
  EXPECT_FALSE(again.Add(Loss(1, 3)).has_value());
  EXPECT_FALSE(again.Add(Loss(5, 3)).has_value());
  EXPECT_TRUE(again.Add(Loss(6, 3)).has_value());
}

TEST(ParseStopCondition, SaysWhatIsWrong) {
  for (const char* text : {"", "loss", "loss is", "loss is good", "loss > ", "loss > x",
                           "loss > nan", "loss = 3", "loss > 1 2", "> 3"}) {
    EXPECT_FALSE(ParseStopCondition(text).ok()) << text;
  }
  EXPECT_THAT(std::string(ParseStopCondition("accuracy < 1").status().message()),
              HasSubstr("there are loss"));
  EXPECT_EQ(ParseStopCondition("lr < 1e-9")->metric, "learning_rate");
  EXPECT_FALSE(ParseStopCondition(std::string(300, 'x') + " is nan").ok());
}

TEST(CheckPlateau, SaysWhatIsWrong) {
  EXPECT_TRUE(CheckPlateau({"eval_loss", 1, 0}).ok());
  EXPECT_FALSE(CheckPlateau({"grad_norm", 1, 0}).ok());
  EXPECT_FALSE(CheckPlateau({"loss", 0, 0}).ok());
  EXPECT_FALSE(CheckPlateau({"loss", 1, -1}).ok());
  EXPECT_FALSE(CheckPlateau({"loss", 1, kInf}).ok());
}

}  // namespace
}  // namespace gpuctl
