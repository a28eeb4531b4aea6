// Reads training numbers out of what scripts print: JSON lines, Hugging Face Trainer's dict lines,
// "key=value" and "key: value" words, tqdm's progress bars. Pure; done on reading, so that it can
// improve without touching a node.
#ifndef GPUCTL_CLIENT_METRICS_METRIC_LINES_H_
#define GPUCTL_CLIENT_METRICS_METRIC_LINES_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace gpuctl {

// What one line says; absent where it does not.
struct MetricSample {
  std::optional<int64_t> step;
  std::optional<int64_t> total_steps;
  std::optional<double> epoch;
  std::optional<double> loss;
  std::optional<double> eval_loss;
  std::optional<double> learning_rate;
  std::optional<double> grad_norm;
  std::optional<double> tokens_per_s;
  // Wall time of the line on the node and its attempt, when the shim stamped it.
  int64_t time_ms = 0;
  int attempt = 0;
  // A checkpoint was published with this line.
  bool checkpoint = false;

  bool empty() const;
};

// Longer lines are not looked at.
constexpr size_t kMaxMetricLineBytes = 64 << 10;

// One line of output, without its newline. nullopt when it carries none of the numbers above.
std::optional<MetricSample> ParseMetricLine(absl::string_view line);

// One line of metrics.jsonl: the job's own object, with the shim's stamp under "gpuctl".
std::optional<MetricSample> ParseMetricsJson(absl::string_view line);

// Joins what one script spreads over lines: Trainer's dict lines carry no step, the progress bar
// above them does.
class OutputMetrics {
 public:
  // A line of output in order; pieces of it between '\r' are lines of their own.
  std::optional<MetricSample> Add(absl::string_view line);

 private:
  std::optional<int64_t> bar_step_;
  std::optional<int64_t> bar_total_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_METRICS_METRIC_LINES_H_
