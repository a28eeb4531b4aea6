#include "client/history/metric_history.h"

#include <algorithm>
#include <limits>

namespace gpuctl {
namespace {

// Points behind an evaluation that has no point yet: each costs time.
constexpr int64_t kMaxLatePoints = 4096;
// The end of the year 9999. What is later is no time.
constexpr int64_t kMaxTimeMs = 253'402'300'799'999;

bool HasNumbers(const MetricSample& sample) {
  return sample.loss || sample.eval_loss || sample.learning_rate || sample.grad_norm ||
         sample.tokens_per_s;
}

void Take(const std::optional<double>& from, std::optional<double>& to) {
  if (from.has_value()) to = from;
}

}  // namespace

// Returns the point of `step`, made where it is missing. A training that goes back to a step goes
// on from there, but an evaluation may be told late; null for one that is too late to be placed.
HistoryPoint* MetricHistory::PointOf(int64_t step, bool of_training) {
  if (of_training) {
    while (!points_.empty() && points_.back().step > step) points_.pop_back();
  }
  auto at = points_.end();
  if (!points_.empty() && points_.back().step >= step) {
    at = std::lower_bound(
        points_.begin(), points_.end(), step,
        [](const HistoryPoint& point, int64_t wanted) { return point.step < wanted; });
    if (at->step == step) return &*at;
    if (points_.end() - at > kMaxLatePoints) return nullptr;
  }
  HistoryPoint point;
  point.step = step;
  return &*points_.insert(at, point);
}

void MetricHistory::Add(const MetricSample& sample, bool time_is_estimate) {
  if (sample.checkpoint || !HasNumbers(sample)) return;
  const bool of_training = !sample.eval_loss.has_value() || sample.loss.has_value();
  const bool counts = sample.step.has_value() && !sample.step_is_evaluations;
  // A script that prints no steps still has an order: that of the lines with a loss.
  int64_t step = points_.empty() ? 0 : points_.back().step;
  if (counts) {
    step = *sample.step;
  } else if (sample.loss.has_value() && !points_.empty()) {
    if (step < std::numeric_limits<int64_t>::max()) ++step;
  } else if (points_.empty() && !sample.loss.has_value() && !sample.eval_loss.has_value()) {
    return;
  }
  HistoryPoint* const found = PointOf(step, of_training);
  if (found == nullptr) return;
  HistoryPoint& point = *found;
  if (sample.time_ms > 0 && sample.time_ms <= kMaxTimeMs && (point.time_ms == 0 || of_training)) {
    point.time_ms = sample.time_ms;
    point.time_is_estimate = time_is_estimate;
  }
  Take(sample.epoch, point.epoch);
  Take(sample.loss, point.loss);
  Take(sample.eval_loss, point.eval_loss);
  Take(sample.learning_rate, point.learning_rate);
  Take(sample.grad_norm, point.grad_norm);
  Take(sample.tokens_per_s, point.tokens_per_s);
  if (points_.size() > max_points_) Thin();
}

// Keeps points that are evenly far apart, about half of them at most, as the curve of
// TrainingProgress does.
void MetricHistory::Thin() {
  thinned_ = true;
  const double gap =
      2 * (static_cast<double>(points_.back().step) - static_cast<double>(points_.front().step)) /
      static_cast<double>(max_points_);
  // Evaluations are few, unless somebody makes them many.
  const auto evaluations =
      std::count_if(points_.begin(), points_.end(),
                    [](const HistoryPoint& point) { return point.eval_loss.has_value(); });
  const bool keep_evaluations = evaluations < static_cast<int64_t>(max_points_ / 4);
  const HistoryPoint last = points_.back();
  size_t kept = 1;
  double kept_step = static_cast<double>(points_.front().step);
  for (size_t i = 1; i < points_.size(); ++i) {
    const double step = static_cast<double>(points_[i].step);
    const bool far = step >= kept_step + gap;
    if (!far && !(keep_evaluations && points_[i].eval_loss.has_value())) continue;
    if (far) kept_step = step;
    points_[kept++] = points_[i];
  }
  points_.resize(kept);
  if (points_.back().step < last.step) points_.push_back(last);
}

}  // namespace gpuctl
