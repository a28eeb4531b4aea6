#include "client/top/top_screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/terminal/line_assembler.h"

namespace gpuctl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

TrainingProgress Falling(int steps, double from) {
  TrainingProgress progress;
  for (int i = 1; i <= steps; ++i) {
    MetricSample sample;
    sample.step = i;
    sample.total_steps = 100;
    sample.loss = from / i;
    sample.tokens_per_s = 1234;
    sample.time_ms = 1000 * i;
    progress.Add(sample);
  }
  return progress;
}

TopRun Row(const std::string& name, const TrainingProgress* progress) {
  TopRun run;
  run.name = name;
  run.node = "ada@gpu.example";
  run.phase = RunPhase::kRunning;
  run.progress = progress;
  run.running_for = absl::Seconds(90);
  return run;
}

TEST(TopScreenTest, ANumberOfTheJobsOwnIsTheFirstToGiveWay) {
  const TrainingProgress progress = Falling(50, 4);
  TopScreen screen;
  screen.runs = {Row("amber-fox-1", &progress)};
  const std::vector<std::string> without = RenderTop(screen, 90, 5, false, true);
  screen.runs[0].own = "accuracy\x1b[2J 0.75";
  EXPECT_EQ(RenderTop(screen, 90, 5, false, true), without);
  const std::vector<std::string> wide = RenderTop(screen, 160, 5, false, true);
  EXPECT_THAT(wide[1], HasSubstr("OWN"));
  EXPECT_THAT(wide[2], HasSubstr("accuracy\\x1b[2J 0.75"));
}

TEST(TopScreenTest, ShowsEachRunInALineAndTheirLossesBelow) {
  const TrainingProgress fast = Falling(50, 4), slow = Falling(20, 8);
  TopScreen screen;
  screen.title = "gpuctl top: 2 runs live";
  screen.runs = {Row("amber-fox-1", &fast), Row("blue-owl-1", &slow)};
  screen.runs[0].spent = "$1.20";
  TelemetrySample telemetry;
  telemetry.cpu_percent = 85;
  telemetry.gpus = {{97.0, 70.1e9, 85.9e9, 512.0, 61.0}, {91.0, 10e9, 85.9e9, 512.0, 61.0}};
  screen.runs[0].telemetry = telemetry;
  const std::vector<std::string> lines = RenderTop(screen, 140, 30, false, true);
  ASSERT_GT(lines.size(), 12u);
  EXPECT_EQ(lines[0], screen.title);
  EXPECT_THAT(lines[1], StartsWith("NAME"));
  EXPECT_THAT(lines[2], AllOf(HasSubstr("amber-fox-1"), HasSubstr("50/100"), HasSubstr("0.08"),
                              HasSubstr("2x 91-97%"), HasSubstr("$1.20"), HasSubstr("1234"),
                              HasSubstr("50s"), HasSubstr("ada@gpu.example")));
  EXPECT_THAT(lines[3], AllOf(HasSubstr("blue-owl-1"), HasSubstr("20/100"), HasSubstr("-")));
  EXPECT_THAT(lines.back(), HasSubstr("1 amber-fox-1  2 blue-owl-1"));
}

TEST(TopScreenTest, FitsEveryTerminal) {
  const TrainingProgress progress = Falling(50, 4);
  TopScreen screen;
  screen.title = "gpuctl top: many runs live; q leaves, the runs go on";
  screen.notices = {"one", "two", "three", "four: a notice that is longer than a narrow terminal"};
  for (int i = 0; i < 40; ++i) screen.runs.push_back(Row(absl::StrCat("run-", i), &progress));
  for (const int columns : {20, 40, 80, 200}) {
    for (const int rows : {4, 10, 24, 50, 100}) {
      const std::vector<std::string> lines = RenderTop(screen, columns, rows, true, true);
      EXPECT_LE(lines.size(), static_cast<size_t>(rows)) << columns << "x" << rows;
      for (const std::string& line : lines) EXPECT_LT(DisplayWidth(line), columns) << line;
    }
  }
  const std::vector<std::string> lines = RenderTop(screen, 80, 24, false, true);
  const std::string all = absl::StrJoin(lines, "\n");
  EXPECT_THAT(all, HasSubstr("more; gpuctl ps lists them"));
  EXPECT_THAT(all, AllOf(HasSubstr("four: a notice"), Not(HasSubstr("\none\n"))));
}

TEST(TopScreenTest, TextOfNodesIsMadeSafe) {
  TopScreen screen;
  screen.title = "gpuctl top";
  screen.runs = {Row("a\x1b[2J", nullptr)};
  screen.runs[0].node = "b\nc";
  screen.runs[0].remark = "no\rlink";
  screen.notices = {"d\x1b]0;e\x07"};
  for (const std::string& line : RenderTop(screen, 100, 20, false, false)) {
    for (const char c : line) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << line;
  }
}

TEST(TopScreenTest, AnEndedRunHasNoSpeedAndNoTimeLeft) {
  TrainingProgress progress = Falling(50, 4);
  MetricSample bad;
  bad.step = 51;
  bad.loss = std::nan("");
  progress.Add(bad);
  TopScreen screen;
  screen.runs = {Row("x-1", &progress)};
  screen.runs[0].phase = RunPhase::kFailed;
  const std::vector<std::string> lines = RenderTop(screen, 100, 6, true, true);
  EXPECT_THAT(lines, SizeIs(3));
  EXPECT_THAT(lines[1], AllOf(Not(HasSubstr("TOK/S")), Not(HasSubstr("LEFT"))));
  EXPECT_THAT(lines[2],
              AllOf(HasSubstr("\x1b[31mfailed"), HasSubstr("nan"), Not(HasSubstr("1234"))));
}

TEST(TopScreenTest, HelpTakesThePlaceOfTheRuns) {
  TopScreen screen;
  screen.title = "gpuctl top: 1 run lives";
  screen.runs = {Row("amber-fox-1", nullptr)};
  screen.help = true;
  const std::vector<std::string> lines = RenderTop(screen, 80, 24, true, true);
  EXPECT_EQ(lines[0], screen.title);
  const std::string all = absl::StrJoin(lines, "\n");
  EXPECT_THAT(all, AllOf(HasSubstr("q, Ctrl-C"), HasSubstr("?, h"), HasSubstr("OWN "),
                         Not(HasSubstr("amber-fox-1"))));
  for (const int columns : {20, 40, 80}) {
    for (const int rows : {4, 10, 24}) {
      const std::vector<std::string> fitted = RenderTop(screen, columns, rows, true, true);
      EXPECT_LE(fitted.size(), static_cast<size_t>(rows));
      for (const std::string& line : fitted) EXPECT_LT(DisplayWidth(line), columns) << line;
    }
  }
}

TEST(TopScreenTest, WithoutRunsOnlyTheTitleIsThere) {
  TopScreen screen;
  screen.title = "gpuctl top: nothing is running";
  EXPECT_THAT(RenderTop(screen, 80, 24, true, true), ElementsAre(screen.title));
}

}  // namespace
}  // namespace gpuctl
