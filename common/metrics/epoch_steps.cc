#include "common/metrics/epoch_steps.h"

#include <algorithm>
#include <cmath>

namespace gpuctl {
namespace {

constexpr double kMostEpochs = 1e9;

// Steps of several processes can come slightly out of order; only a larger fall is a new epoch.
// With a total that was not reached it is none: a part of the training is repeated.
bool Fell(int64_t step, int64_t last) { return step <= last / 2 && last - step >= 3; }

}  // namespace

void EpochSteps::Unfold(StepScope scope, MetricSample& sample) {
  if (sample.attempt != attempt_) {
    *this = EpochSteps();
    attempt_ = sample.attempt;
  }
  if (!sample.step.has_value()) return;
  const int64_t step = *sample.step;
  const int64_t total = sample.total_steps.value_or(-1);
  const bool has_epoch =
      sample.epoch.has_value() && *sample.epoch >= 0 && *sample.epoch < kMostEpochs;
  const int64_t epoch = has_epoch ? static_cast<int64_t>(std::floor(*sample.epoch)) : -1;
  if (sample.total_epochs.has_value()) total_epochs_ = *sample.total_epochs;
  if (epoch > epoch_ && step >= last_ && last_ >= 0 && scope == StepScope::kMaybeEpoch &&
      epoch_ >= 0) {
    whole_ = true;
    folded_ = false;
    offset_ = 0;
  }
  if (scope != StepScope::kUnknown && !whole_) folded_ = true;
  if (last_ < 0) {
    first_epoch_ = std::min<int64_t>(std::max<int64_t>(epoch, 0), 1);
    if (scope == StepScope::kEpoch && epoch > first_epoch_ && total > 0) {
      offset_ = (epoch - first_epoch_) * total;
    }
  } else if (scope == StepScope::kEpoch && step == 0 && last_ > 0 && epoch == epoch_) {
    // Lightning sets its bar to 0 before it changes the epoch's number.
    sample.step = offset_ + last_;
    if (folded_) SetWholeTotals(sample);
    sample.remaining_s.reset();
    return;
  } else {
    Advance(step, total, epoch);
  }
  if (last_ >= 0 && step > last_) interval_ = step - last_;
  last_ = step;
  total_ = total;
  if (epoch >= 0) epoch_ = epoch;
  sample.step = offset_ + step;
  if (folded_) SetWholeTotals(sample);
}

// Moves the offset when a new epoch has begun.
void EpochSteps::Advance(int64_t step, int64_t total, int64_t epoch) {
  const bool known = epoch >= 0 && epoch_ >= 0;
  const int64_t epochs = known && epoch > epoch_ ? epoch - epoch_ : 0;
  if (step >= last_) {
    if (epochs > 0 && folded_ && total > 0) offset_ += epochs * total;
    return;
  }
  if (known && epoch < epoch_) {  // the script starts again
    offset_ = folded_ && total > 0 ? std::max<int64_t>(0, epoch - first_epoch_) * total : 0;
    return;
  }
  const bool full = total > 0 && total == total_ && last_ + interval_ >= total;
  if ((epochs > 0 || full) && total > 0) {
    offset_ += std::max<int64_t>(epochs, 1) * total;
    if (epoch < 0 && epoch_ >= 0) ++epoch_;  // not printed yet
  } else if (epochs > 0 || (Fell(step, last_) && (total <= 0 || total != total_))) {
    offset_ += last_ + interval_ - step;
  } else {
    return;
  }
  folded_ = true;
}

void EpochSteps::SetWholeTotals(MetricSample& sample) const {
  const int64_t left = epoch_ >= 0 ? total_epochs_ - (epoch_ - first_epoch_) - 1 : -1;
  sample.total_steps = total_ > 0 && total_epochs_ > 0 ? total_ * total_epochs_ : -1;
  if (!sample.remaining_s.has_value()) return;
  double epoch_s = 0;
  if (sample.elapsed_s.has_value()) {
    epoch_s = *sample.elapsed_s + *sample.remaining_s;
  } else if (total_ > last_) {
    epoch_s =
        *sample.remaining_s * static_cast<double>(total_) / static_cast<double>(total_ - last_);
  }
  if (total_epochs_ > 0 && left >= 0) {
    *sample.remaining_s += epoch_s * static_cast<double>(left);
  } else {
    sample.remaining_is_of_epoch = true;
  }
}

}  // namespace gpuctl
