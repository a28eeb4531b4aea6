// The files that gpuctl metrics writes: event files for TensorBoard, a drawing.
#ifndef GPUCTL_CLIENT_VERBS_METRICS_FILES_H_
#define GPUCTL_CLIENT_VERBS_METRICS_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/history/gpu_history.h"
#include "client/history/metric_history.h"
#include "client/history/own_metrics.h"
#include "client/metrics/progress.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// All that is known of a run's numbers. It stays at one place.
struct RunNumbers {
  RunRow row;
  TrainingProgress progress;
  MetricHistory history;
  OwnMetrics own;
  std::string label;                 // in legends: its name, and its parameters in a batch
  std::vector<PlotPoint> chosen;     // of the metric that the user named
  std::unique_ptr<GpuHistory> gpus;  // refers to the history
};
using RunNumbersList = std::vector<std::unique_ptr<RunNumbers>>;

struct WrittenFile {
  std::string run_id, name;  // empty when it is of several runs
  std::string path;
  int64_t bytes = 0;
};

// Writes an event file for each run that has numbers, into a directory of its own below `dir`.
// Another call with the same `dir` brings the files up to date: where a file only became longer,
// the rest is appended, so that a running TensorBoard shows it.
absl::StatusOr<std::vector<WrittenFile>> WriteEventFiles(const RunNumbersList& runs,
                                                         const std::string& dir);

// Checks the name of a drawing, before anything is asked or read.
absl::Status CheckPlotName(const std::string& path);
// Draws all runs into an SVG file, with `log_y` the loss or the metric on a logarithmic axis;
// replaces an existing one. NOT_FOUND when no run has numbers.
absl::StatusOr<WrittenFile> WritePlot(const RunNumbersList& runs, const std::string& path,
                                      const std::string& metric, bool log_y);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_METRICS_FILES_H_
