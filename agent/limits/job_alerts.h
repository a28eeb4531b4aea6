// The alerts of one job: its numbers read as they come, on the node.
#ifndef GPUCTL_AGENT_LIMITS_JOB_ALERTS_H_
#define GPUCTL_AGENT_LIMITS_JOB_ALERTS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "common/job/job_layout.h"
#include "common/job/lifecycle.h"
#include "common/job/stream_file.h"
#include "common/metrics/alert_watch.h"
#include "common/metrics/epoch_steps.h"
#include "common/metrics/metric_sample.h"
#include "common/metrics/output_metrics.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

// True when the job has conditions of its own to be stopped under.
bool HasAlerts(const gpuctl::v1::JobSpec& spec);

// Reads what a job writes as metrics and, until it writes any, the numbers in its output. Only
// those of the newest attempt count. Not thread-safe.
class JobAlerts {
 public:
  JobAlerts(const JobPaths& job, const gpuctl::v1::JobSpec& spec);

  // Reads what is new, a few MiB at most; skips output that comes faster. Returns why the attempt
  // that `lifecycle` ends with is to be stopped; nothing while it may go on.
  std::optional<std::string> Look(const Lifecycle& lifecycle);

 private:
  void BeginAttempt(const LifecycleEvent& started);
  void ReadMetrics();
  void TakeMetricsLine();
  void ReadOutput();
  void Take(const MetricSample& sample);

  const gpuctl::v1::JobSpec spec_;
  StreamReader metrics_, output_;
  int attempt_ = 0;
  int64_t metrics_offset_ = 0, output_offset_ = 0;
  std::string line_;  // of metrics, without its end
  bool has_metrics_ = false;
  std::optional<AlertWatch> watch_;
  EpochSteps steps_;  // of metrics
  OutputMetrics printed_;
  std::optional<std::string> why_;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_LIMITS_JOB_ALERTS_H_
