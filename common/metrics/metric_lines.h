// Reads training numbers from one line of a script: JSON lines, Hugging Face Trainer's dict lines,
// "key=value" and "key: value" words, progress bars. Pure. The laptop does this while reading, and
// the node for the alerts of a job. What needs several lines is in
// common/metrics/output_metrics.h.
#ifndef GPUCTL_COMMON_METRICS_METRIC_LINES_H_
#define GPUCTL_COMMON_METRICS_METRIC_LINES_H_

#include <cstddef>
#include <optional>

#include "absl/strings/string_view.h"
#include "common/metrics/metric_sample.h"

namespace gpuctl {

// Size limit of a line; longer ones are not parsed.
constexpr size_t kMaxMetricLineBytes = 64 << 10;

// Parses one line of output, without its newline. nullopt when it has none of the numbers above.
std::optional<MetricSample> ParseMetricLine(absl::string_view line);

// Parses one line of metrics.jsonl: the job's own object, with the shim's stamp under "gpuctl", or
// the job's line as "text" when it was not JSON. Numbers may be NaN or infinite.
std::optional<MetricSample> ParseMetricsJson(absl::string_view line);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_METRICS_METRIC_LINES_H_
