#include "client/history/svg_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>

#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

SvgChart LossChart(std::vector<std::vector<PlotPoint>> curves) {
  SvgChart chart;
  chart.title = "loss";
  chart.height = 360;
  chart.smoothed = true;
  chart.curves = std::move(curves);
  return chart;
}

std::vector<PlotPoint> FallingCurve(int points) {
  std::vector<PlotPoint> curve;
  for (int i = 1; i <= points; ++i) curve.push_back({i * 1.0, 3.0 / i + (i % 2) * 0.1});
  return curve;
}

size_t Count(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(SvgChartTest, TicksAreRound) {
  EXPECT_THAT(RoundTicks(0, 100, 5), ElementsAre(0, 20, 40, 60, 80, 100));
  EXPECT_THAT(RoundTicks(1.3, 2.9, 3), ElementsAre(1.5, 2.0, 2.5));
  EXPECT_EQ(RoundTicks(5, 5, 3).size(), 1u);
  EXPECT_LE(RoundTicks(-1e308, 1e308, 6).size(), 14u);
  for (const double low : {0.0, -3.7, 1e-12, 12345.0}) {
    for (const double width : {1e-9, 0.3, 7.0, 1e6}) {
      const auto ticks = RoundTicks(low, low + width, 6);
      EXPECT_GE(ticks.size(), 2u) << low << " " << width;
      EXPECT_LE(ticks.size(), 12u) << low << " " << width;
    }
  }
}

TEST(SvgChartTest, SmoothingKeepsTheLevelFromTheFirstValueOn) {
  std::vector<PlotPoint> points;
  for (int i = 0; i < 100; ++i) points.push_back({i * 1.0, i % 2 == 0 ? 4.0 : 6.0});
  points[50].y = kNan;
  const std::vector<PlotPoint> smoothed = Smoothed(points);
  ASSERT_EQ(smoothed.size(), 99u);
  for (size_t i = 0; i < smoothed.size(); ++i) EXPECT_NEAR(smoothed[i].y, 5, 0.8) << i;
}

TEST(SvgChartTest, SmoothingDoesNotLag) {
  std::vector<PlotPoint> points;
  for (int i = 0; i < 1000; ++i) points.push_back({i * 1.0, 1000.0 - i});
  const std::vector<PlotPoint> smoothed = Smoothed(points);
  for (size_t i = 100; i < 900; ++i) EXPECT_NEAR(smoothed[i].y, points[i].y, 0.1) << i;
}

TEST(SvgChartTest, ShowsEachRunWithALegend) {
  const std::string svg =
      FormatSvg({"first", "second"}, {LossChart({FallingCurve(200), FallingCurve(100)})}, "step");
  EXPECT_THAT(svg, HasSubstr(">first</text>"));
  EXPECT_THAT(svg, HasSubstr(">second</text>"));
  EXPECT_THAT(svg, HasSubstr(">step</text>"));
  EXPECT_THAT(svg, HasSubstr("pale: as measured, strong: smoothed"));
  // Each run has a pale line and a smoothed one.
  EXPECT_EQ(Count(svg, "<path d="), 4u);
  EXPECT_EQ(Count(svg, "stroke-opacity"), 2u);
}

TEST(SvgChartTest, FewPointsAreNotSmoothed) {
  const std::string svg = FormatSvg({"run"}, {LossChart({FallingCurve(5)})}, "step");
  EXPECT_EQ(Count(svg, "<path d="), 1u);
  EXPECT_THAT(svg, Not(HasSubstr("smoothed")));
}

TEST(SvgChartTest, NamesAreText) {
  const std::string svg =
      FormatSvg({"</text><script>x()</script>&\"'"}, {LossChart({FallingCurve(5)})}, "step");
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, HasSubstr("&lt;/text&gt;&lt;script&gt;x()&lt;/script&gt;&amp;&quot;&#39;"));
}

TEST(SvgChartTest, ValuesThatAreNotFiniteBreakTheLineAndAreMarked) {
  std::vector<PlotPoint> curve = FallingCurve(10);
  curve[4].y = kNan;
  curve[7].y = std::numeric_limits<double>::infinity();
  const std::string svg = FormatSvg({"run"}, {LossChart({curve})}, "step");
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  EXPECT_EQ(Count(svg, "stroke=\"#c00\""), 2u);
  EXPECT_THAT(svg, HasSubstr("red cross: not finite"));
  for (const double odd : {kNan, std::numeric_limits<double>::max()}) {
    EXPECT_EQ(FormatSvg({"run"}, {LossChart({{{1, odd}}})}, "step"), "");
  }
}

TEST(SvgChartTest, ASpikeDoesNotFlattenTheCurve) {
  std::vector<PlotPoint> curve = FallingCurve(200);
  curve[100].y = 1e9;
  const std::string svg = FormatSvg({"run"}, {LossChart({curve})}, "step");
  EXPECT_THAT(svg, HasSubstr("loss (1 value far above left out)"));
}

TEST(SvgChartTest, OddValuesStayNumbers) {
  const double huge = 9e299;
  for (const auto& curve : std::vector<std::vector<PlotPoint>>{{{1, 2}},
                                                               {{0, 0}},
                                                               {{1, -huge}, {2, huge}},
                                                               {{-huge, 1}, {huge, 1}},
                                                               {{1, 1e-300}, {2, 2e-300}},
                                                               {{9e18, 1}, {9.2e18, 2}}}) {
    const std::string svg = FormatSvg({"run"}, {LossChart({curve})}, "step");
    EXPECT_THAT(svg, HasSubstr("</svg>"));
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
  }
}

TEST(SvgChartTest, ManyPointsMakeASmallFile) {
  std::vector<PlotPoint> curve;
  for (int i = 0; i < 200'000; ++i) curve.push_back({i * 1.0, std::sin(i * 0.37)});
  EXPECT_LT(FormatSvg({"run"}, {LossChart({curve})}, "step").size(), 400'000u);
}

TEST(SvgChartTest, ALogarithmicAxisHasPowersOfTen) {
  SvgChart chart;
  chart.title = "loss";
  chart.height = 360;
  chart.logarithmic = true;
  chart.curves = {{{0, 1000}, {1, 10}, {2, 0.1}, {3, 0}}};
  const std::string svg = FormatSvg({"a-1"}, {chart}, "step");
  EXPECT_THAT(svg, HasSubstr("loss, logarithmic (1 value not above 0 left out)"));
  for (const char* tick : {">1000<", ">100<", ">10<", ">1<", ">0.1<"}) {
    EXPECT_THAT(svg, HasSubstr(tick));
  }
  // Equal factors are equally far apart: the line is straight.
  double y[3] = {};
  ASSERT_NE(svg.find("d=\"M76.0 "), svg.npos) << svg;
  ASSERT_EQ(std::sscanf(svg.c_str() + svg.find("d=\"M76.0 "), "d=\"M76.0 %lfL506.0 %lfL936.0 %lf",
                        y, y + 1, y + 2),
            3)
      << svg;
  EXPECT_NEAR(y[1] - y[0], y[2] - y[1], 0.2);
  chart.curves = {{{0, 0.52}, {1, 0.34}}};
  EXPECT_THAT(FormatSvg({"a-1"}, {chart}, "step"), AllOf(HasSubstr(">0.4<"), HasSubstr(">0.5<")));
  chart.curves = {{{0, 0}, {1, -1}}};
  EXPECT_EQ(FormatSvg({"a-1"}, {chart}, "step"), "");
}

}  // namespace
}  // namespace gpuctl
