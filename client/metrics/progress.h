// The state of a run's training, from its metrics, its output and the node's telemetry. Pure.
#ifndef GPUCTL_CLIENT_METRICS_PROGRESS_H_
#define GPUCTL_CLIENT_METRICS_PROGRESS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/metrics/plot.h"
#include "common/metrics/metric_lines.h"

namespace gpuctl {

class TrainingProgress {
 public:
  void Add(const MetricSample& sample);

  int64_t step() const { return step_; }                // -1: unknown
  int64_t total_steps() const { return total_steps_; }  // -1: unknown
  std::optional<double> epoch() const { return epoch_; }
  int64_t total_epochs() const { return total_epochs_; }  // -1: unknown
  std::optional<double> loss() const { return loss_; }
  std::optional<double> eval_loss() const { return eval_loss_; }
  std::optional<double> learning_rate() const { return learning_rate_; }
  std::optional<double> grad_norm() const { return grad_norm_; }
  std::optional<double> tokens_per_s() const { return tokens_per_s_; }
  int64_t checkpoint_step() const { return checkpoint_step_; }  // -1: none seen

  // Return the loss by step, ascending, from the last attempt that passed the step. Thinned to a
  // few thousand points.
  const std::vector<PlotPoint>& losses() const { return losses_; }
  const std::vector<PlotPoint>& eval_losses() const { return eval_losses_; }
  std::vector<double> LossValues() const;

  // Returns the time to the last step: at this attempt's average pace, else as the job's own
  // progress bar tells it; nullopt when that is unknown.
  std::optional<absl::Duration> Eta() const;
  // Returns the time to the end of the epoch where the job's bar tells no more.
  std::optional<absl::Duration> EpochEta() const;
  bool empty() const { return step_ < 0 && !loss_.has_value(); }

  // Passes each field with its name to `visit`, to store or to load it.
  template <typename Visitor>
  void Visit(Visitor&& visit) {
    visit("step", step_);
    visit("total_steps", total_steps_);
    visit("checkpoint_step", checkpoint_step_);
    visit("total_epochs", total_epochs_);
    visit("epoch", epoch_);
    visit("loss", loss_);
    visit("eval_loss", eval_loss_);
    visit("learning_rate", learning_rate_);
    visit("grad_norm", grad_norm_);
    visit("tokens_per_s", tokens_per_s_);
    visit("remaining_s", remaining_s_);
    visit("remaining_is_of_epoch", remaining_is_of_epoch_);
    visit("losses", losses_);
    visit("eval_losses", eval_losses_);
    visit("attempt", attempt_);
    visit("first_step", first_step_);
    visit("first_ms", first_ms_);
    visit("last_ms", last_ms_);
  }

 private:
  static void AddPoint(double x, double y, std::vector<PlotPoint>& points);
  int64_t step_ = -1, total_steps_ = -1, checkpoint_step_ = -1;
  int64_t total_epochs_ = -1;
  std::optional<double> epoch_, loss_, eval_loss_, learning_rate_, grad_norm_, tokens_per_s_;
  std::optional<double> remaining_s_;
  bool remaining_is_of_epoch_ = false;
  std::vector<PlotPoint> losses_, eval_losses_;
  int64_t attempt_ = 0;
  int64_t first_step_ = -1, first_ms_ = 0, last_ms_ = 0;
};

// One line of the node's telemetry.
struct TelemetrySample {
  struct Gpu {
    std::optional<double> utilization_percent, memory_used_bytes, memory_total_bytes, power_w,
        temperature_c;
    std::string name{}, driver_version{};  // "": not told
  };
  int64_t time_ms = 0;
  std::optional<double> cpu_percent, memory_used_bytes, memory_total_bytes;
  std::vector<Gpu> gpus;
};
std::optional<TelemetrySample> ParseTelemetry(absl::string_view line);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_METRICS_PROGRESS_H_
