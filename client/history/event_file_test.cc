#include "client/history/event_file.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gpuctl/v1/event_file.pb.h"

namespace gpuctl {
namespace {

MetricSample StepAt(int64_t step, double loss, int64_t time_ms) {
  MetricSample sample;
  sample.step = step;
  sample.loss = loss;
  sample.time_ms = time_ms;
  return sample;
}

// tests/end_to_end/metrics.py reads the files with code of its own.
std::vector<v1::TensorBoardEvent> EventsOf(absl::string_view file) {
  std::vector<v1::TensorBoardEvent> events;
  while (file.size() >= 12) {
    uint64_t size = 0;
    for (int i = 7; i >= 0; --i) size = size << 8 | static_cast<unsigned char>(file[i]);
    EXPECT_EQ(FormatRecord(file.substr(12, size)), file.substr(0, 16 + size));
    EXPECT_TRUE(events.emplace_back().ParseFromArray(file.data() + 12, static_cast<int>(size)));
    file.remove_prefix(16 + size);
  }
  EXPECT_TRUE(file.empty());
  return events;
}

// The values of RFC 3720, appendix B.4.
TEST(EventFileTest, TheSumsAreThePublishedOnes) {
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending.push_back(c);
  EXPECT_EQ(Crc32c(ascending), 0x46dd794eu);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
}

TEST(EventFileTest, HasTheNumbersOfEachStep) {
  MetricHistory history;
  MetricSample sample = StepAt(10, 2.5, 1'700'000'001'500);
  sample.learning_rate = 0.25;
  history.Add(sample);
  MetricSample evaluation;
  evaluation.step = 10;
  evaluation.eval_loss = 3;
  history.Add(evaluation);
  GpuHistory gpus(history);
  TelemetrySample line;
  line.time_ms = 1'700'000'001'000;
  line.gpus.push_back({80.0, 4e9, 8e9, std::nullopt, std::nullopt});
  gpus.Add(line);
  gpus.Finish();
  const auto events = EventsOf(FormatEventFile(history, gpus, 1'700'000'000'000));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[0].wall_time(), 1'700'000'000);
  EXPECT_EQ(events[1].step(), 10);
  EXPECT_EQ(events[1].wall_time(), 1'700'000'001.5);
  std::string text;
  for (const auto& value : events[1].summary().value()) {
    absl::StrAppend(&text, value.tag(), "=", value.simple_value(), " ");
  }
  EXPECT_EQ(text,
            "train/loss=2.5 train/learning_rate=0.25 eval/loss=3 gpu0/utilization_percent=80 "
            "gpu0/memory_used_gb=4 ");
}

TEST(EventFileTest, ALongerHistoryBeginsWithTheShorterOne) {
  MetricHistory history;
  std::string before;
  for (int step = 1; step <= 50; ++step) {
    history.Add(StepAt(step, 1.0 / step, 1'700'000'000'000 + 1000 * step));
    GpuHistory gpus(history);
    gpus.Finish();
    const std::string file = FormatEventFile(history, gpus, 1'700'000'000'000);
    EXPECT_TRUE(absl::StartsWith(file, before)) << step;
    before = file;
  }
}

TEST(EventFileTest, TimesDoNotGoBack) {
  MetricHistory history;
  history.Add(StepAt(1, 1, 1'700'000'005'000));
  history.Add(StepAt(2, 1, 1'700'000'001'000));  // somebody set the clock
  history.Add(StepAt(3, 1, 0));
  const GpuHistory gpus(history);
  const auto events = EventsOf(FormatEventFile(history, gpus, 1'700'000'000'000));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[3].wall_time(), 1'700'000'005);
}

}  // namespace
}  // namespace gpuctl
