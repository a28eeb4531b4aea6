// The texts of a run's end: true, one line each, harmless wherever they are shown.
#include "client/notify/notice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "client/notify/send_notice.h"
#include "tests/support/matchers.h"
#include "tests/support/scripted_http.h"

namespace gpuctl {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

Notice Failed() {
  Notice notice;
  notice.row.name = "math-3";
  notice.row.run_id = "r-1";
  notice.row.target.name = "vast/<20>";
  RunEnd end;
  end.state = gpuctl::v1::JOB_STATE_FINISHED;
  end.exit_code = end.job_code = 3;
  end.ended_ms = 3'605'000;
  notice.row.end = end;
  notice.status = StatusOfEnded(notice.row);
  notice.status.started_ms = 5'000;
  notice.best = BestMetric{"loss", 1.25, 40};
  notice.cost_usd = 2.1;
  return notice;
}

TEST(Notice, SaysHowItEnded) {
  EXPECT_EQ(TitleOf(Failed()), "math-3 failed");
  EXPECT_EQ(BodyOf(Failed()), "exited with code 3 after 1h 00m, $2.10, best loss 1.25 at step 40");
  EXPECT_THAT(NoticeVariables(Failed()), Contains("GPUCTL_OUTCOME=failed"));
  EXPECT_THAT(NoticeVariables(Failed()), Contains("GPUCTL_BEST_VALUE=1.25"));
  EXPECT_EQ(NoticeJson(Failed())["best"]["step"], 40);
}

TEST(Notice, IsOneHarmlessLine) {
  Notice notice = Failed();
  notice.row.end->reason = "<!channel> & \n\x1b[31m";
  notice.row.end->source = EndSource::kGpuctl;
  notice.row.end->state = gpuctl::v1::JOB_STATE_LOST;
  for (const std::string& text : {TitleOf(notice), BodyOf(notice)}) {
    EXPECT_THAT(text, Not(HasSubstr("\n")));
    EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  }
  const std::string sent = SlackMessage(notice).dump();
  EXPECT_THAT(sent, Not(HasSubstr("<")));
  EXPECT_THAT(sent, HasSubstr("&lt;!channel&gt; &amp;"));
}

TEST(Notice, TheBestIsTheLowestHeldOutLoss) {
  TrainingProgress progress;
  EXPECT_FALSE(BestOf(progress).has_value());
  MetricSample sample;
  for (const double loss : {3.0, 1.0, std::nan(""), -std::numeric_limits<double>::infinity()}) {
    sample.step = sample.step.value_or(0) + 1;
    sample.loss = loss;
    progress.Add(sample);
  }
  ASSERT_TRUE(BestOf(progress).has_value());
  EXPECT_EQ(BestOf(progress)->name, "loss");
  EXPECT_EQ(BestOf(progress)->value, 1.0);
}

}  // namespace
}  // namespace gpuctl
