#include "client/metrics/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/terminal/line_assembler.h"

namespace gpuctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SparklineTest, ShowsTheShape) {
  EXPECT_EQ(Sparkline({8, 7, 6, 5, 4, 3, 2, 1}, 8, false), "█▇▆▅▄▃▂▁");
  EXPECT_EQ(Sparkline({1, 2}, 8, true), "_@");
  EXPECT_EQ(Sparkline({3, 3, 3}, 8, false), "▄▄▄");
  EXPECT_EQ(Sparkline({}, 8, false), "");
  EXPECT_EQ(Sparkline({NAN, INFINITY}, 8, false), "");
  EXPECT_EQ(DisplayWidth(Sparkline(std::vector<double>(1000, 1.0), 10, false)), 10);
}

TEST(PlotTest, DrawsInAscii) {
  const std::vector<std::string> lines =
      Plot({{"loss", {{0, 4}, {1, 3}, {2, 2}, {3, 1}}}}, "step", 20, 6, true);
  EXPECT_EQ(absl::StrJoin(lines, "\n"),
            "       4 |***       \n"
            "         |   ***    \n"
            "         |      *** \n"
            "       1 |         *\n"
            "         +----------\n"
            "          0   3 step");
}

TEST(PlotTest, FitsTheSizeItIsGiven) {
  std::vector<PlotPoint> points;
  for (int i = 0; i < 500; ++i) points.push_back({double(i), std::exp(-i / 100.0)});
  const auto lines = Plot({{"a", points}, {"b", points}}, "step", 60, 12, false);
  ASSERT_EQ(lines.size(), 12u);
  for (const std::string& line : lines) EXPECT_LE(DisplayWidth(line), 60) << line;
  EXPECT_THAT(lines.back(), HasSubstr("a"));
}

TEST(PlotTest, EachOfSeveralHasItsSignAtItsEnd) {
  const std::vector<PlotSeries> series = {{"sweep-1 lr=0.1", {{0, 4}, {3, 1}}},
                                          {"sweep-2 lr=1", {{0, 4}, {3, 4}}}};
  const std::vector<std::string> lines = Plot(series, "step", 50, 9, false);
  ASSERT_EQ(lines.size(), 9u);
  EXPECT_EQ(lines[0].back(), '2');
  EXPECT_EQ(lines[5].back(), '1');
  EXPECT_EQ(lines[8], "          1 sweep-1 lr=0.1  2 sweep-2 lr=1");
}

TEST(PlotTest, SignsAtOnePlaceStandSideBySide) {
  const std::vector<PlotPoint> same = {{0, 4}, {1, 3}, {2, 2}, {3, 1}};
  EXPECT_EQ(absl::StrJoin(Plot({{"a", same}, {"b", same}}, "step", 20, 7, true), "\n"),
            "       4 |222       \n"
            "         |   222    \n"
            "         |      222 \n"
            "       1 |         1\n"
            "         +----------\n"
            "          0   3 step\n"
            "          1 a  2 b");
}

TEST(PlotTest, ALongLegendLeavesRoomForTheCurves) {
  std::vector<PlotSeries> series;
  for (int i = 1; i <= 40; ++i) series.push_back({absl::StrCat("sweep-", i), {{0, 1}, {1, 2}}});
  const std::vector<std::string> lines = Plot(series, "step", 60, 12, false);
  ASSERT_EQ(lines.size(), 12u);
  EXPECT_THAT(lines[9], HasSubstr("1 sweep-1  2 sweep-2"));
  EXPECT_THAT(lines[11], HasSubstr(" more"));
  for (const std::string& line : lines) EXPECT_LE(DisplayWidth(line), 60) << line;
}

TEST(PlotTest, TheAxisIsStraightBesideLongNumbers) {
  const auto lines = Plot({{"loss", {{0, 4}, {1, -0.0004959}}}}, "step", 40, 6, true);
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[3].substr(0, 12), "-0.0004959 |");
  for (size_t row = 0; row < 4; ++row) EXPECT_EQ(lines[row].find('|'), 11u) << lines[row];
  EXPECT_EQ(lines[4].find('+'), 11u);
}

TEST(PlotTest, CopesWithNothingMuch) {
  EXPECT_TRUE(Plot({}, "step", 60, 12, false).empty());
  EXPECT_TRUE(Plot({{"a", {{0, NAN}}}}, "step", 60, 12, false).empty());
  EXPECT_TRUE(Plot({{"a", {{0, 1}}}}, "step", 10, 2, false).empty());
  EXPECT_FALSE(Plot({{"a", {{0, 1}}}}, "step", 60, 12, false).empty());
}

TEST(PlotTest, ALogarithmicAxisLeavesOutWhatIsNotAboveZero) {
  // Each step is a tenth of the one before, so that the curve is a straight line.
  const PlotSeries series{"", {{0, 100}, {1, 10}, {2, 1}, {3, 0}, {4, -5}}};
  const std::vector<std::string> plot =
      Plot({series}, "steps", 40, 7, /*ascii=*/true, /*log_y=*/true);
  ASSERT_EQ(plot.size(), 7u);
  EXPECT_THAT(plot[0], AllOf(HasSubstr(" 100 |"), HasSubstr("*")));
  EXPECT_THAT(plot[2], HasSubstr(" 10 |"));
  EXPECT_THAT(plot[4], HasSubstr(" 1 |"));
  EXPECT_THAT(plot[6], HasSubstr("2 steps"));
  // On a linear axis the middle of the curve would be far to the left.
  const auto middle = static_cast<double>(plot[2].find('*') + plot[2].rfind('*'));
  EXPECT_NEAR(middle, static_cast<double>(plot[0].find('*') + plot[4].rfind('*')), 8);
  EXPECT_TRUE(Plot({{"", {{0, 0}, {1, -1}}}}, "steps", 40, 7, true, true).empty());
}

}  // namespace
}  // namespace gpuctl
