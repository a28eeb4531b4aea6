#include "client/streams/read_history.h"

#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

constexpr int64_t kBegin = 1'700'000'000'000;

class ReadHistoryTest : public ::testing::Test {
 protected:
  void Output(const std::string& bytes) {
    ASSERT_TRUE(MakeDirectories(mirror_.Sub("output")).ok());
    std::ofstream(mirror_.Sub("output/00000000000000000000"), std::ios::app) << bytes;
    size_ += static_cast<int64_t>(bytes.size());
  }
  void Event(LifecycleEvent::Type type, int attempt, int64_t time_ms) {
    LifecycleEvent event;
    event.type = type;
    event.attempt = attempt;
    event.time_ms = time_ms;
    event.output_size = size_;
    if (type == LifecycleEvent::Type::kExited) event.exit_code = 0;
    std::ofstream(mirror_.Sub("lifecycle.jsonl"), std::ios::app) << FormatLifecycleEvent(event);
  }
  MetricHistory Read(int64_t heard_ms) {
    MirrorReader reader(mirror_.path(), 0);
    MetricHistory history;
    EXPECT_TRUE(ReadHistory(reader, heard_ms, history).ok());
    return history;
  }
  TempDir mirror_;
  int64_t size_ = 0;
};

TEST_F(ReadHistoryTest, NothingIsNoError) { EXPECT_TRUE(Read(0).points().empty()); }

TEST_F(ReadHistoryTest, MetricsHaveTheirOwnTimes) {
  Output("step 1 loss 9\nstep 2 loss 9\n");
  std::ofstream metrics(mirror_.Sub("metrics.jsonl"));
  for (int step = 1; step <= 3; ++step) {
    metrics << "{\"step\":" << step << ",\"loss\":" << step
            << ",\"lr\":0.5,\"gpuctl\":{\"time_ms\":" << kBegin + 1000 * step
            << ",\"attempt\":1}}\n";
  }
  metrics.close();
  const MetricHistory history = Read(0);
  ASSERT_EQ(history.points().size(), 3u);
  EXPECT_EQ(history.points()[1].loss, 2);
  EXPECT_EQ(history.points()[1].time_ms, kBegin + 2000);
  EXPECT_FALSE(history.points()[1].time_is_estimate);
}

TEST_F(ReadHistoryTest, PrintedStepsGetTimesBetweenTheAttemptsBeginAndEnd) {
  Event(LifecycleEvent::Type::kStarted, 1, kBegin);
  for (int step = 1; step <= 1000; ++step) {
    Output(absl::StrCat("step ", 1000 + step, " loss 1.5", std::string(50, ' '), "\n"));
  }
  Event(LifecycleEvent::Type::kExited, 1, kBegin + 1'000'000);
  const MetricHistory history = Read(0);
  ASSERT_EQ(history.points().size(), 1000u);
  const HistoryPoint& middle = history.points()[499];
  EXPECT_TRUE(middle.time_is_estimate);
  EXPECT_NEAR(static_cast<double>(middle.time_ms - kBegin), 500'000, 40'000);
  for (size_t i = 1; i < 1000; ++i) {
    EXPECT_GE(history.points()[i].time_ms, history.points()[i - 1].time_ms);
  }
}

TEST_F(ReadHistoryTest, ASecondAttemptInTheSameBytesReplacesTheSteps) {
  Event(LifecycleEvent::Type::kStarted, 1, kBegin);
  Output("step 1 loss 5\nstep 2 loss 5\nstep 3 loss 5\n");
  Event(LifecycleEvent::Type::kExited, 1, kBegin + 10'000);
  Event(LifecycleEvent::Type::kStarted, 2, kBegin + 60'000);
  Output("step 2 loss 4\nstep 3 loss 3\n");
  const MetricHistory history = Read(kBegin + 70'000);
  ASSERT_EQ(history.points().size(), 3u);
  EXPECT_EQ(history.points()[0].loss, 5);
  EXPECT_EQ(history.points()[2].loss, 3);
  EXPECT_GE(history.points()[2].time_ms, kBegin + 60'000);
  EXPECT_LE(history.points()[2].time_ms, kBegin + 70'000);
}

TEST_F(ReadHistoryTest, TelemetryJoinsBySteps) {
  std::ofstream metrics(mirror_.Sub("metrics.jsonl"));
  for (int step = 1; step <= 2; ++step) {
    metrics << "{\"step\":" << step
            << ",\"loss\":1,\"gpuctl\":{\"time_ms\":" << kBegin + 2000 * step << "}}\n";
  }
  metrics.close();
  ASSERT_TRUE(MakeDirectories(mirror_.Sub("telemetry")).ok());
  std::ofstream telemetry(mirror_.Sub("telemetry/00000000000000000000"));
  telemetry << "torn\"}\n";
  for (int s = 1; s <= 4; ++s) {
    telemetry << "{\"time_ms\":" << kBegin + 1000 * s
              << ",\"gpus\":[{\"utilization_percent\":" << 10 * s << "}]}\n";
  }
  telemetry.close();
  MirrorReader reader(mirror_.path(), 0);
  MetricHistory history;
  ASSERT_TRUE(ReadHistory(reader, 0, history).ok());
  GpuHistory gpus(history);
  ASSERT_TRUE(ReadGpuHistory(reader, gpus).ok());
  ASSERT_EQ(gpus.groups().size(), 2u);
  EXPECT_EQ(gpus.UtilizationAt(history.points()[0]), 15);
  EXPECT_EQ(gpus.UtilizationAt(history.points()[1]), 35);
}

}  // namespace
}  // namespace gpuctl
