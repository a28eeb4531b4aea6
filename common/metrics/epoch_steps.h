// Steps that begin again with each epoch, as one count over the whole training. Pure.
#ifndef GPUCTL_COMMON_METRICS_EPOCH_STEPS_H_
#define GPUCTL_COMMON_METRICS_EPOCH_STEPS_H_

#include <cstdint>

#include "common/metrics/metric_sample.h"

namespace gpuctl {

// What is known of a step: whether its count begins again with each epoch.
enum class StepScope { kUnknown, kMaybeEpoch, kEpoch };

class EpochSteps {
 public:
  // Changes step, total and remaining time of a training sample, so that they are those of the
  // whole training. Take the samples in order. A new attempt begins anew.
  void Unfold(StepScope scope, MetricSample& sample);
  // Returns the step of an evaluation that was counted in the present epoch.
  int64_t Whole(int64_t step) const { return offset_ + step; }

  // Passes each field with its name to `visit`, to store or to load it.
  template <typename Visitor>
  void Visit(Visitor&& visit) {
    visit("attempt", attempt_);
    visit("offset", offset_);
    visit("last", last_);
    visit("total", total_);
    visit("interval", interval_);
    visit("epoch", epoch_);
    visit("first_epoch", first_epoch_);
    visit("total_epochs", total_epochs_);
    visit("folded", folded_);
    visit("whole", whole_);
  }

 private:
  void Advance(int64_t step, int64_t total, int64_t epoch);
  void SetWholeTotals(MetricSample& sample) const;

  int64_t attempt_ = 0;
  int64_t offset_ = 0;  // whole step - printed step
  int64_t last_ = -1, total_ = -1, interval_ = 1;
  int64_t epoch_ = -1, first_epoch_ = 0, total_epochs_ = -1;
  bool folded_ = false;  // the steps begin again with each epoch
  bool whole_ = false;   // they do not, although it looked so
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_METRICS_EPOCH_STEPS_H_
