// Conditions under which a training is not worth going on: a number that is too large or no number,
// a loss that no longer falls. Pure.
#ifndef GPUCTL_COMMON_METRICS_ALERT_WATCH_H_
#define GPUCTL_COMMON_METRICS_ALERT_WATCH_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/metrics/metric_sample.h"

namespace gpuctl {

// One condition on the newest number of a metric.
struct StopCondition {
  enum class Test { kNan, kInfinite, kNotFinite, kAbove, kAtLeast, kBelow, kAtMost };
  std::string metric;  // "loss", "eval_loss", "grad_norm", "learning_rate", "tokens_per_s"
  Test test = Test::kNan;
  double bound = 0;
  std::string text;  // as the user wrote it
};
// Parses "loss is nan", "loss is inf", "loss is not finite", "grad_norm > 100" (also >=, <, <=).
// INVALID_ARGUMENT says what is wrong, with the nearest right word.
absl::StatusOr<StopCondition> ParseStopCondition(absl::string_view text);

// The lowest value of the metric has not fallen by more than `min_delta` for so many steps.
struct Plateau {
  std::string metric = "loss";  // or "eval_loss"
  int64_t steps = 0;            // 0: there is none
  double min_delta = 0;
};
absl::Status CheckPlateau(const Plateau& plateau);

// Watches the numbers of one attempt.
class AlertWatch {
 public:
  AlertWatch(std::vector<StopCondition> conditions, std::vector<Plateau> plateaus);

  // Takes the next numbers. Returns why the job is to be stopped, the first time that a condition
  // holds: "loss is nan at step 120".
  std::optional<std::string> Add(const MetricSample& sample);

 private:
  struct Fall {
    double lowest = std::numeric_limits<double>::infinity();
    int64_t since = -1;    // the step of the lowest value
    int64_t without = -1;  // counts numbers where there are no steps
  };
  std::optional<std::string> Add(const MetricSample& sample, const Plateau& plateau, Fall& fall);

  const std::vector<StopCondition> conditions_;
  const std::vector<Plateau> plateaus_;
  std::vector<Fall> falls_;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_METRICS_ALERT_WATCH_H_
