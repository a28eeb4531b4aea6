#include "client/streams/mirror_reader.h"

#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

std::string LossLine(int step, double loss) {
  return absl::StrCat("{'loss': ", loss, ", 'step': ", step, "}\n");
}

void Append(const TempDir& mirror, const std::string& bytes) {
  ASSERT_TRUE(MakeDirectories(mirror.Sub("output")).ok());
  std::ofstream(mirror.Sub("output/00000000000000000000"), std::ios::app) << bytes;
}

TEST(MirrorReaderTest, FindsNumbersInOutput) {
  TempDir mirror;
  MirrorReader reader(mirror.path(), 0);
  EXPECT_TRUE(reader.RefreshOutputMetrics().ok());
  Append(mirror, LossLine(1, 4.0));
  EXPECT_TRUE(reader.RefreshOutputMetrics().ok());
  Append(mirror, LossLine(2, 3.0));
  EXPECT_TRUE(reader.RefreshOutputMetrics().ok());
  EXPECT_EQ(reader.progress().losses().size(), 2u);
  EXPECT_EQ(reader.progress().step(), 2);
}

// Otherwise the screen would stand still while a mirror fills with gigabytes.
TEST(MirrorReaderTest, ReadsALargeOutputPieceByPiece) {
  TempDir mirror;
  MirrorReader reader(mirror.path(), 0);
  Append(mirror, LossLine(1, 4.0));
  EXPECT_TRUE(reader.RefreshOutputMetrics().ok());
  Append(mirror, absl::StrCat(LossLine(2, 3.0), std::string(8 << 20, '\n'), LossLine(3, 2.0)));
  EXPECT_TRUE(reader.RefreshOutputMetrics(/*at_most=*/1 << 20).ok());
  // The newest numbers are known at once, the curve in time.
  EXPECT_EQ(reader.progress().step(), 3);
  EXPECT_EQ(reader.progress().losses().size(), 1u);
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(reader.RefreshOutputMetrics(/*at_most=*/1 << 20).ok());
  }
  EXPECT_EQ(reader.progress().step(), 3);
  ASSERT_EQ(reader.progress().losses().size(), 3u);
  EXPECT_EQ(reader.progress().losses()[2].x, 3);
}

TEST(MirrorReaderTest, TheNewestPartBeginsWithAWholeLine) {
  TempDir mirror;
  MirrorReader reader(mirror.path(), 0);
  // The newest megabyte begins within "loss': 77}", which would be a loss of 77 by itself.
  const std::string last = LossLine(9, 0.5);
  const std::string torn = "{'step': 8, 'loss': 77}\n";
  const size_t in_torn = std::string("loss': 77}\n").size();
  const std::string middle((size_t{1} << 20) - last.size() - in_torn, '\n');
  Append(mirror, absl::StrCat(LossLine(1, 4.0), std::string(4 << 20, '\n'), torn, middle, last));
  EXPECT_TRUE(reader.RefreshOutputMetrics(/*at_most=*/1 << 20).ok());
  ASSERT_EQ(reader.progress().losses().size(), 1u);
  EXPECT_EQ(reader.progress().step(), 9);
  EXPECT_EQ(reader.progress().loss(), 0.5);
}

TEST(MirrorReaderTest, APartWithoutNumbersLeavesThoseOfBefore) {
  TempDir mirror;
  MirrorReader reader(mirror.path(), 0);
  Append(mirror, absl::StrCat(LossLine(1, 4.0), std::string(8 << 20, '\n')));
  EXPECT_TRUE(reader.RefreshOutputMetrics(/*at_most=*/1 << 20).ok());
  EXPECT_EQ(reader.progress().step(), 1);
}

std::string StepLine(int step) {
  return absl::StrCat("step ", step, ": loss ", step, ".5\n", std::string(100, '#'), "\n");
}

TEST(MirrorReaderTest, ReadsTheWholeOutputOnce) {
  TempDir mirror;
  std::string output;
  for (int step = 1; step <= 100'000; ++step) output += StepLine(step);
  Append(mirror, output);  // 12 MB
  MirrorReader reader(mirror.path(), 0);
  EXPECT_TRUE(reader.RefreshAll().ok());
  // All of it, and each line whole: a torn line would give a step or a loss of its own.
  ASSERT_FALSE(reader.progress().losses().empty());
  EXPECT_EQ(reader.progress().losses().front().x, 1);
  for (const PlotPoint& point : reader.progress().losses()) ASSERT_EQ(point.y, point.x + 0.5);
  // The next gpuctl takes what was found. Bytes that it has no need of may even be gone.
  Append(mirror, StepLine(100'001));
  MirrorReader next(mirror.path(), 0);
  EXPECT_TRUE(next.RefreshOutputMetrics(/*at_most=*/1 << 20).ok());
  EXPECT_EQ(next.progress().step(), 100'001);
  EXPECT_EQ(next.progress().losses().front().x, 1);
  EXPECT_EQ(next.progress().losses().size(), reader.progress().losses().size() + 1);
}

TEST(MirrorReaderTest, AnotherOutputIsReadFromItsBeginning) {
  TempDir mirror;
  Append(mirror, LossLine(1, 4.0) + std::string(1 << 20, '\n'));
  MirrorReader reader(mirror.path(), 0);
  EXPECT_TRUE(reader.RefreshAll().ok());
  ASSERT_TRUE(PathExists(mirror.Sub("numbers")));
  std::ofstream(mirror.Sub("output/00000000000000000000"), std::ios::trunc)
      << LossLine(7, 3.0) << std::string(2 << 20, 'x');
  MirrorReader next(mirror.path(), 0);
  EXPECT_TRUE(next.RefreshAll().ok());
  ASSERT_EQ(next.progress().losses().size(), 1u);
  EXPECT_EQ(next.progress().losses()[0].x, 7);
}

TEST(MirrorReaderTest, CheckpointLinesLeaveTheNumbersOfTheOutput) {
  TempDir mirror;
  Append(mirror, LossLine(1, 4.0));
  std::ofstream(mirror.Sub("metrics.jsonl")) << "{\"type\":\"checkpoint\",\"step\":1}\n";
  MirrorReader reader(mirror.path(), 0);
  EXPECT_TRUE(reader.RefreshAll().ok());
  EXPECT_EQ(reader.progress().losses().size(), 1u);
  EXPECT_EQ(reader.progress().checkpoint_step(), 1);
}

TEST(MirrorReaderTest, AnAttemptBeginsInTheMiddleOfTheOutput) {
  TempDir mirror;
  std::string lifecycle;
  int64_t size = 0;
  for (int attempt = 1; attempt <= 2; ++attempt) {
    LifecycleEvent started;
    started.type = LifecycleEvent::Type::kStarted;
    started.attempt = attempt;
    started.output_size = size;
    lifecycle += FormatLifecycleEvent(started);
    std::string output;
    for (int step = 100; step <= 300; step += 100) output += LossLine(step, attempt);
    size += static_cast<int64_t>(output.size());
    Append(mirror, output);
  }
  std::ofstream(mirror.Sub("lifecycle.jsonl")) << lifecycle;
  MirrorReader reader(mirror.path(), 0);
  EXPECT_TRUE(reader.RefreshAll().ok());
  ASSERT_EQ(reader.progress().losses().size(), 3u);
  EXPECT_EQ(reader.progress().losses()[0].y, 2);
}

TEST(MirrorReaderTest, ReadsMetricsInStepsForCallersThatHearSignals) {
  TempDir mirror;
  const std::string line = "{\"step\":1,\"loss\":1.0,\"pad\":\"" + std::string(1000, 'x') + "\"}\n";
  {
    std::ofstream metrics(mirror.Sub("metrics.jsonl"));
    for (int i = 0; i < 9000; ++i) metrics << line;
  }
  MirrorReader reader(mirror.path(), 0);
  int steps = 0;
  while (true) {
    const absl::StatusOr<bool> more = reader.RefreshSome();
    ASSERT_TRUE(more.ok());
    ++steps;
    if (!*more) break;
  }
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(reader.progress().step(), 1);
}

}  // namespace
}  // namespace gpuctl
