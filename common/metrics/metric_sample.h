// The training numbers of one line of a script.
#ifndef GPUCTL_COMMON_METRICS_METRIC_SAMPLE_H_
#define GPUCTL_COMMON_METRICS_METRIC_SAMPLE_H_

#include <cstdint>
#include <optional>

namespace gpuctl {

// The numbers of one line; absent where the line has none.
struct MetricSample {
  std::optional<int64_t> step;
  std::optional<int64_t> total_steps;  // -1: known to be unknown
  bool step_is_evaluations = false;    // `step` counts the batches of an evaluation
  std::optional<double> epoch;
  std::optional<int64_t> total_epochs;
  std::optional<double> loss;
  std::optional<double> eval_loss;
  std::optional<double> learning_rate;
  std::optional<double> grad_norm;
  std::optional<double> tokens_per_s;
  // The time that a progress bar has taken, and the time that it still expects to take, in seconds.
  std::optional<double> elapsed_s;
  std::optional<double> remaining_s;
  bool remaining_is_of_epoch = false;  // true when `remaining_s` says nothing of later epochs
  // The line's wall time on the node, in milliseconds, and its attempt, when the shim stamped it.
  int64_t time_ms = 0;
  int attempt = 0;
  // True when a checkpoint was published with this line.
  bool checkpoint = false;

  bool empty() const;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_METRICS_METRIC_SAMPLE_H_
