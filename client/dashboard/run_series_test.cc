#include "client/dashboard/run_series.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/dashboard/actions.h"
#include "client/dashboard/gpu_series.h"
#include "common/files/files.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using Json = nlohmann::ordered_json;

class RunSeriesTest : public ::testing::Test {
 protected:
  void Metrics(int from, int to, double loss, int attempt = 1) {
    std::ofstream file(mirror_.Sub("metrics.jsonl"), std::ios::app);
    for (int step = from; step <= to; ++step) {
      file << "{\"step\":" << step << ",\"loss\":" << loss << ",\"gpuctl\":{\"time_ms\":" << step
           << ",\"attempt\":" << attempt << "}}\n";
    }
  }
  void Output(const std::string& bytes) {
    ASSERT_TRUE(MakeDirectories(mirror_.Sub("output")).ok());
    std::ofstream(mirror_.Sub("output/00000000000000000000"), std::ios::app) << bytes;
  }
  Json News(bool over = false) {
    EXPECT_TRUE(series_.Read(0, over).ok());
    return series_.TakeNews();
  }
  TempDir mirror_;
  RunSeries series_{mirror_.path(), 0};
};

TEST_F(RunSeriesTest, TellsOnlyWhatIsNew) {
  Metrics(1, 3, 0.5);
  Json news = News();
  EXPECT_EQ(news["from_step"], nullptr);
  EXPECT_EQ(news["steps"].size(), 3u);
  EXPECT_EQ(news["steps"][2], Json::parse("[3,0.5,null,null,null]"));
  EXPECT_TRUE(News().is_null());
  Metrics(4, 5, 0.25);
  news = News();
  EXPECT_LE(news["from_step"].get<int>(), 4);
  EXPECT_LE(news["steps"].size(), 3u);
  EXPECT_EQ(news["steps"].back()[0], 5);
}

TEST_F(RunSeriesTest, AResumedAttemptTakesItsStepsBack) {
  Metrics(1, 9, 0.5);
  (void)News();
  Metrics(4, 6, 0.25, 2);
  const Json news = News();
  EXPECT_LE(news["from_step"].get<int>(), 4);
  EXPECT_EQ(news["steps"].back(), Json::parse("[6,0.25,null,null,null]"));
  EXPECT_EQ(series_.Whole()["steps"].size(), 6u);
}

// What a page has that took the news one by one, whatever they were.
TEST_F(RunSeriesTest, TheNewsMakeTheWhole) {
  Json page = Json::array();
  const auto take = [&page](const Json& news) {
    if (news.is_null()) return;
    while (!page.empty() && (news["from_step"].is_null() ||
                             page.back()[0].get<int64_t>() >= news["from_step"].get<int64_t>())) {
      page.erase(page.size() - 1);
    }
    for (const Json& step : news["steps"]) page.push_back(step);
  };
  unsigned random = 7;
  int step = 1;
  int attempt = 1;
  for (int round = 0; round < 60; ++round) {
    random = random * 1103515245 + 12345;
    const int count = static_cast<int>(random >> 16) % 500;
    if ((random >> 8) % 5 == 0) {
      step = std::max(1, step - count);
      ++attempt;
    }
    Metrics(step, step + count, 1.0 / (round + 1), attempt);
    step += count + 1;
    take(News());
    ASSERT_EQ(page, series_.Whole()["steps"]) << round;
  }
  EXPECT_TRUE(series_.Whole()["thinned"]);
  EXPECT_LE(page.size(), RunSeries::kMostSteps);
}

TEST_F(RunSeriesTest, OutputIsReadWhereNoMetricsAre) {
  Output("step 1/9 loss 0.5\nstep 2/9 loss 0.4\nstep 3/9 lo");
  Json news = News();
  ASSERT_EQ(news["steps"].size(), 2u);
  EXPECT_EQ(news["log"], Json::parse(R"(["step 1/9 loss 0.5","step 2/9 loss 0.4"])"));
  EXPECT_EQ(news["partial_line"], "step 3/9 lo");
  Output("ss 0.3\n");
  news = News();
  EXPECT_EQ(news["steps"].back()[0], 3);
  EXPECT_EQ(news["log"], Json::parse(R"(["step 3/9 loss 0.3"])"));
  EXPECT_EQ(news["partial_line"], "");
  // The job's own numbers replace those that were guessed.
  Metrics(7, 8, 0.1);
  news = News();
  EXPECT_EQ(news["from_step"], nullptr);
  EXPECT_EQ(news["steps"].size(), 2u);
  EXPECT_EQ(news["steps"][0][0], 7);
}

TEST_F(RunSeriesTest, OutputIsSafeAndBounded) {
  Output("a\x1b[31mred\x1b[0m\tb\x1b]0;title\x07\xff\r\nbar 1%\rbar 2%\n");
  Output(std::string(100'000, 'w') + "\n");
  for (int i = 0; i < 5000; ++i) Output(absl::StrCat("line ", i, "\n"));
  const Json news = News();
  EXPECT_EQ(news["log"].size(), RunSeries::kMostLines);
  EXPECT_EQ(news["log"].back(), "line 4999");
  RunSeries fresh(mirror_.path(), 0);
  ASSERT_TRUE(fresh.Read(0, false).ok());
  EXPECT_EQ(fresh.Whole()["log"].back(), "line 4999");
}

TEST_F(RunSeriesTest, ControlBytesBecomeReadable) {
  Output("a\x1b[31mred\x1b[0m\tb\x07\xe2\x80\xae\n" + std::string(10'000, 'w') +
         "\nbar 1%\rbar 2%\n");
  const Json log = News()["log"];
  ASSERT_EQ(log.size(), 3u);
  EXPECT_EQ(log[0].get<std::string>().substr(0, 4), "ared");
  for (const Json& line : log) {
    for (const char c : line.get<std::string>()) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
  }
  EXPECT_LT(log[1].get<std::string>().size(), 5000u);
  EXPECT_EQ(log[2], "bar 2%");
}

TEST_F(RunSeriesTest, ABarInOneLineForHours) {
  std::string bar;
  for (int i = 0; i < 20'000; ++i) absl::StrAppend(&bar, "\rstep ", i, "/20000 and more words");
  Output(bar);
  EXPECT_EQ(News()["log"].back(), "step 19999/20000 and more words");
  Output("\rstep 20000/20000 and more words");
  EXPECT_EQ(News()["partial_line"], "step 20000/20000 and more words");
}

TEST_F(RunSeriesTest, CheckpointsAreListed) {
  std::ofstream(mirror_.Sub("metrics.jsonl"))
      << "{\"type\":\"checkpoint\",\"step\":50}\n{\"type\":\"checkpoint\",\"step\":100}\n";
  const Json news = News();
  ASSERT_EQ(news["checkpoints_told"].size(), 2u);
  EXPECT_EQ(news["checkpoints_told"][1]["step"], 100);
  EXPECT_TRUE(news["steps"].empty());
}

TEST_F(RunSeriesTest, NumbersOfTheJobsOwnAreTheNewestOnes) {
  EXPECT_TRUE(News()["own"].empty());
  {
    std::ofstream metrics(mirror_.Sub("metrics.jsonl"));
    metrics << "{\"step\":1,\"loss\":2,\"acc\":0.25}\n{\"step\":2,\"eval\":{\"f1\":0.5}}\n"
               "{\"step\":3,\"acc\\u001b\":1}\n";
  }
  const Json own = News()["own"];
  EXPECT_EQ(own, Json::parse(R"([{"name":"acc\\x1b","value":1.0},{"name":"eval/f1","value":0.5},
                                 {"name":"acc","value":0.25}])"));
  EXPECT_TRUE(series_.TakeNews().is_null());
}

TEST(GpuSeries, KeepsMeansOfAllGpusAndThins) {
  GpuSeries series;
  for (int second = 1; second <= 10'000; ++second) {
    TelemetrySample sample;
    sample.time_ms = second * 1000;
    TelemetrySample::Gpu one, two;
    one.utilization_percent = 40;
    two.utilization_percent = 80;
    one.memory_used_bytes = 10;
    one.memory_total_bytes = 40;
    one.power_w = two.power_w = 300;
    one.temperature_c = 50;
    two.temperature_c = 70;
    sample.gpus = {one, two};
    series.Add(sample);
    if (second == 3) {
      EXPECT_EQ(series.TakeChanged(), 0u);
      EXPECT_EQ(series.TakeChanged(), 3u);
    }
  }
  EXPECT_LE(series.points().size(), GpuSeries::kMostPoints);
  EXPECT_GE(series.points().size(), GpuSeries::kMostPoints / 2);
  EXPECT_EQ(series.points().front().time_ms, 1000);
  EXPECT_GT(series.points().back().time_ms, 9'980'000);
  for (const GpuPoint& point : series.points()) {
    EXPECT_DOUBLE_EQ(*point.utilization_percent, 60);
    EXPECT_DOUBLE_EQ(*point.memory_percent, 25);
    EXPECT_DOUBLE_EQ(*point.power_w, 600);
    EXPECT_DOUBLE_EQ(*point.temperature_c, 70);
  }
  EXPECT_EQ(series.TakeChanged(), 0u);
}

TEST(MakeStringsSafe, ReachesEveryString) {
  Json json = {{"a", "x\x1b[2J"}, {"b", {{{"c", "\xe2\x80\xae"}}, 3, nullptr}}};
  MakeStringsSafe(json);
  EXPECT_EQ(json["a"], "x\\x1b[2J");
  EXPECT_EQ(json["b"][0]["c"], "\\u202e");
  EXPECT_EQ(json["b"][1], 3);
}

TEST(ReadOutcome, TellsWhatTheVerbPrinted) {
  const auto outcome = [](const std::string& verb, const std::string& output, int code) {
    Action action;
    action.verb = verb;
    action.run_name = "amber-fox-3";
    ReadOutcome(output, code, action);
    return action;
  };
  Action action = outcome("stop", R"({"runs":[{"status":"stopped","exit_code":143}]})", 0);
  EXPECT_EQ(action.state, Action::State::kDone);
  EXPECT_EQ(action.text, "it has ended: stopped, exit code 143");
  action = outcome(
      "pull",
      R"({"bytes":2000,"checkpoints":[{"path":"./a/step-2","already_here":false}],"files":[]})", 0);
  EXPECT_EQ(action.text, "brought ./a/step-2 (2.00 kB came, verified)");
  action = outcome("pull", R"({"error":{"message":"no room","hint":"free some"}})", 1);
  EXPECT_EQ(action.state, Action::State::kFailed);
  EXPECT_EQ(action.text, "no room");
  EXPECT_EQ(action.hint, "free some");
  // It was killed, or says something else.
  for (const char* output : {"", "[]", "{", "null", "\"x\"", "{\"error\":3}", "{\"runs\":3}"}) {
    action = outcome("stop", output, 137);
    EXPECT_EQ(action.state, Action::State::kFailed) << output;
    EXPECT_FALSE(action.text.empty()) << output;
  }
  for (const char* output : {"{}", R"({"runs":[3]})", R"({"runs":[]})",
                             R"({"checkpoints":[3,{"path":4,"already_here":"x"}]})"}) {
    EXPECT_EQ(outcome("stop", output, 0).state, Action::State::kDone) << output;
    EXPECT_EQ(outcome("pull", output, 0).state, Action::State::kDone) << output;
  }
}

}  // namespace
}  // namespace gpuctl
