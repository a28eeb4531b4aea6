// A job's alerts, read from its metrics and its output as a shim writes them.
#include "agent/limits/job_alerts.h"

#include <gtest/gtest.h>

#include <string>

#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

class JobAlertsTest : public ::testing::Test {
 protected:
  JobAlertsTest() : job_(dir_.path()) {
    EXPECT_OK(MakeDirectories(job_.output));
    spec_.mutable_alerts()->add_stop_if("loss is nan");
    spec_.mutable_alerts()->add_stop_if("a word of the future");
    gpuctl::v1::PlateauAlert& plateau = *spec_.mutable_alerts()->add_plateau();
    plateau.set_metric("loss");
    plateau.set_steps(100);
    BeginAttempt(1);
  }
  void BeginAttempt(int attempt) {
    LifecycleEvent started;
    started.type = LifecycleEvent::Type::kStarted;
    started.attempt = attempt;
    started.metrics_size = SizeOf(job_.metrics, {});
    started.output_size = SizeOf(job_.output, OutputShape(spec_));
    lifecycle_.events.push_back(started);
  }
  static int64_t SizeOf(const std::string& path, StreamShape shape) {
    return StreamReader(path, shape).GetExtent()->size;
  }
  void Metrics(const std::string& text) {
    EXPECT_OK(StreamWriter::Open(job_.metrics, {})->Append(text));
  }
  void Print(const std::string& text) {
    EXPECT_OK(StreamWriter::Open(job_.output, OutputShape(spec_))->Append(text));
  }
  static std::string Nan(int step) {
    return "{\"gpuctl\":{\"attempt\":1},\"text\":\"{\\\"step\\\":" + std::to_string(step) +
           ",\\\"loss\\\":NaN}\"}\n";
  }
  std::string Why(JobAlerts& alerts) { return alerts.Look(lifecycle_).value_or(""); }

  TempDir dir_;
  JobPaths job_;
  gpuctl::v1::JobSpec spec_;
  Lifecycle lifecycle_;
};

TEST_F(JobAlertsTest, MetricsAreReadAsTheyCome) {
  JobAlerts alerts(job_, spec_);
  EXPECT_EQ(Why(alerts), "");
  // The shim's form of a line that is not JSON.
  Metrics("{\"step\":1,\"loss\":2}\n{\"gpuctl\":{\"attempt\":1},\"text\":\"{\\\"step\\\":2,");
  EXPECT_EQ(Why(alerts), "");
  Metrics("\\\"loss\\\":NaN}\"}\n");
  EXPECT_EQ(Why(alerts), "loss is nan at step 2");
  EXPECT_EQ(Why(alerts), "loss is nan at step 2");
}

TEST_F(JobAlertsTest, OutputCountsUntilThereAreMetrics) {
  JobAlerts alerts(job_, spec_);
  Print("step 1/9 loss 2.0\nstep 2/9 loss nan\nstep 3/9 loss 1.0\n");
  EXPECT_EQ(Why(alerts), "loss is nan at step 2");
  JobAlerts other(job_, spec_);
  Metrics("{\"step\":1,\"loss\":2}\n");
  EXPECT_EQ(Why(other), "");
}

TEST_F(JobAlertsTest, ASuccessorOfTheGuardFindsTheSame) {
  for (int step = 0; step < 101; ++step) {
    Metrics("{\"step\":" + std::to_string(step) + ",\"loss\":3}\n");
    JobAlerts alerts(job_, spec_);
    ASSERT_EQ(Why(alerts), step < 100 ? "" : "loss has not fallen for 100 steps at step 100");
  }
}

TEST_F(JobAlertsTest, AnotherAttemptBeginsAnew) {
  JobAlerts alerts(job_, spec_);
  Metrics(Nan(1));
  EXPECT_NE(Why(alerts), "");
  BeginAttempt(2);
  EXPECT_EQ(Why(alerts), "");
  Metrics(Nan(2));
  EXPECT_EQ(Why(alerts), "loss is nan at step 2");
  LifecycleEvent exited;
  exited.type = LifecycleEvent::Type::kExited;
  exited.attempt = 2;
  lifecycle_.events.push_back(exited);
  EXPECT_EQ(Why(alerts), "");
}

TEST_F(JobAlertsTest, NonsenseAndFloodsChangeNothing) {
  JobAlerts alerts(job_, spec_);
  Metrics(std::string(1 << 20, 'x'));
  Print(std::string(100 << 20, 'y'));
  EXPECT_EQ(Why(alerts), "");
  Metrics("\n\n{}\n[]\n{\"loss\":\"much\"}\n\xff\n");
  EXPECT_EQ(Why(alerts), "");
  Print("\nstep 7/9 loss nan\n");
  std::string why;
  for (int look = 0; look < 60 && why.empty(); ++look) why = Why(alerts);
  EXPECT_EQ(why, "loss is nan at step 7");
}

}  // namespace
}  // namespace gpuctl
