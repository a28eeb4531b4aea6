// Reads training numbers from the output of scripts: JSON lines, Hugging Face Trainer's dict lines,
// "key=value" and "key: value" words, tqdm's progress bars. Pure. The laptop does this while
// reading, so that it can improve without a change on the node.
#ifndef GPUCTL_CLIENT_METRICS_METRIC_LINES_H_
#define GPUCTL_CLIENT_METRICS_METRIC_LINES_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace gpuctl {

// The numbers of one line; absent where the line has none.
struct MetricSample {
  std::optional<int64_t> step;
  std::optional<int64_t> total_steps;
  std::optional<double> epoch;
  std::optional<double> loss;
  std::optional<double> eval_loss;
  std::optional<double> learning_rate;
  std::optional<double> grad_norm;
  std::optional<double> tokens_per_s;
  // The line's wall time on the node, in milliseconds, and its attempt, when the shim stamped it.
  int64_t time_ms = 0;
  int attempt = 0;
  // True when a checkpoint was published with this line.
  bool checkpoint = false;

  bool empty() const;
};

// Size limit of a line; longer ones are not parsed.
constexpr size_t kMaxMetricLineBytes = 64 << 10;

// Parses one line of output, without its newline. nullopt when it has none of the numbers above.
std::optional<MetricSample> ParseMetricLine(absl::string_view line);

// Parses one line of metrics.jsonl: the job's own object, with the shim's stamp under "gpuctl", or
// the job's line as "text" when it was not JSON. Numbers may be NaN or infinite.
std::optional<MetricSample> ParseMetricsJson(absl::string_view line);

// Joins numbers that a script spreads over lines: Trainer's dict lines have no step, the progress
// bar above them has it.
class OutputMetrics {
 public:
  // Takes the lines of output in order; pieces between '\r' count as lines.
  std::optional<MetricSample> Add(absl::string_view line);

 private:
  std::optional<int64_t> bar_step_;
  std::optional<int64_t> bar_total_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_METRICS_METRIC_LINES_H_
