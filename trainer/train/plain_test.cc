// Tests the parts of train/ without tensors: schedule and metric lines.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/base/files.h"
#include "trainer/tests/temp_dir.h"
#include "trainer/train/metrics.h"
#include "trainer/train/schedule.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::ordered_json;

OptimizerConfig Rates(const std::string& schedule) {
  OptimizerConfig config;
  config.lr = 1.0;
  config.min_lr_ratio = 0.2;
  config.warmup_steps = 10;
  config.schedule = schedule;
  return config;
}

TEST(ScheduleTest, WarmsUpLinearlyToThePeak) {
  for (const char* schedule : {"cosine", "linear", "constant"}) {
    EXPECT_DOUBLE_EQ(LearningRate(Rates(schedule), 0, 110), 0.1);
    EXPECT_DOUBLE_EQ(LearningRate(Rates(schedule), 4, 110), 0.5);
    EXPECT_DOUBLE_EQ(LearningRate(Rates(schedule), 9, 110), 1.0);
    EXPECT_DOUBLE_EQ(LearningRate(Rates(schedule), 10, 110), 1.0);
  }
}

TEST(ScheduleTest, FallsAsItsNameSays) {
  EXPECT_DOUBLE_EQ(LearningRate(Rates("cosine"), 60, 110), 0.6);
  EXPECT_NEAR(LearningRate(Rates("cosine"), 35, 110), 0.2 + 0.8 * 0.5 * (1 + std::sqrt(0.5)),
              1e-12);
  EXPECT_NEAR(LearningRate(Rates("cosine"), 110, 110), 0.2, 1e-12);
  EXPECT_DOUBLE_EQ(LearningRate(Rates("linear"), 60, 110), 0.6);
  EXPECT_DOUBLE_EQ(LearningRate(Rates("linear"), 85, 110), 0.4);
  EXPECT_DOUBLE_EQ(LearningRate(Rates("linear"), 200, 110), 0.2);
  EXPECT_DOUBLE_EQ(LearningRate(Rates("constant"), 109, 110), 1.0);
}

TEST(ScheduleTest, AWarmUpAsLongAsTheRunIsTold) {
  OptimizerConfig config = Rates("cosine");
  config.warmup_steps = 20;
  EXPECT_EQ(WarmupProblem(config, 21), "");
  EXPECT_NE(WarmupProblem(config, 20).find("rises for 20 steps, and the run has 20"),
            std::string::npos);
  EXPECT_NE(WarmupProblem(config, 7), "");
}

TEST(ScheduleTest, NoWarmUpStartsAtThePeak) {
  OptimizerConfig config = Rates("cosine");
  config.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(LearningRate(config, 0, 100), 1.0);
}

TEST(MetricsTest, LongTextIsCutToOneAtomicWrite) {
  const std::string text(100000, '\x01');  // each becomes \u0001
  const std::string line = MetricLine({{"type", "sample"}, {"text", text}});
  EXPECT_LE(line.size(), Metrics::kLargestLine);
  EXPECT_GT(line.size(), 3000u);
  const auto parsed = ordered_json::parse(line);
  EXPECT_EQ(parsed["cut"], true);
  EXPECT_FALSE(parsed["text"].get<std::string>().empty());
}

TEST(MetricsTest, BytesThatAreNotUtf8AreReplaced) {
  const auto parsed = ordered_json::parse(MetricLine({{"text",
                                                       "a\xff"
                                                       "b"}}));
  EXPECT_EQ(parsed["text"],
            "a\xef\xbf\xbd"
            "b");
}

TEST(MetricsTest, PlainFilesAreAppendedTo) {
  const TempDir directory;
  const std::string path = directory.path() + "/m";
  Metrics(path).Write({{"a", 1}});
  Metrics(path).Write({{"a", 2}});
  EXPECT_EQ(ReadWholeFile(path), "{\"a\":1}\n{\"a\":2}\n");
}

TEST(MetricsTest, AFullDiskTearsNoOtherLine) {
  const TempDir dir;
  const std::string path = dir.path() + "/metrics";
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old = signal(SIGXFSZ, SIG_IGN);
  {
    Metrics metrics(path);
    metrics.Write({{"a", 1}});
    const rlimit small = {12, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    metrics.Write({{"a", 2}});
    metrics.Write({{"a", 3}});
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    metrics.Write({{"a", 4}});
    EXPECT_EQ(metrics.lost(), 2);
  }
  EXPECT_EQ(ReadWholeFile(path), "{\"a\":1}\n{\"a\"\n{\"a\":4}\n");
  WriteFileDurably(path, "{\"a\":1}\n{\"a");  // of a run that was killed
  Metrics(path).Write({{"a", 2}});
  EXPECT_EQ(ReadWholeFile(path), "{\"a\":1}\n{\"a\n{\"a\":2}\n");
  signal(SIGXFSZ, old);
}

TEST(MetricsTest, NoReaderLosesLinesAndNothingElse) {
  const TempDir directory;
  const std::string path = directory.path() + "/fifo";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  Metrics metrics(path);
  metrics.Write({{"a", 1}});
  EXPECT_EQ(metrics.lost(), 1);
  EXPECT_EQ(metrics.WhyNot(), "");  // it waits for its reader
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  metrics.Write({{"a", 2}});
  EXPECT_EQ(metrics.lost(), 1);
  char buffer[64] = {};
  ASSERT_GT(read(reader, buffer, sizeof(buffer)), 0);
  EXPECT_STREQ(buffer, "{\"a\":2}\n");
  close(reader);
  signal(SIGPIPE, SIG_IGN);
  metrics.Write({{"a", 3}});
  metrics.Write({{"a", 4}});
  EXPECT_EQ(metrics.lost(), 3);
}

TEST(MetricsTest, NoPathOrABadOneIsHarmless) {
  Metrics off("");
  off.Write({{"a", 1}});
  EXPECT_EQ(off.lost(), 0);
  Metrics bad("/nonexistent/directory/fifo");
  bad.Write({{"a", 1}});
  EXPECT_EQ(bad.lost(), 1);
  EXPECT_EQ(bad.WhyNot(), "No such file or directory");
  EXPECT_EQ(off.WhyNot(), "");
}

}  // namespace
}  // namespace gpuctl::trainer
