// The numbers of a training, step by step: what its lines said, joined by step. Pure.
#ifndef GPUCTL_CLIENT_HISTORY_METRIC_HISTORY_H_
#define GPUCTL_CLIENT_HISTORY_METRIC_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/metrics/metric_sample.h"

namespace gpuctl {

// The numbers of one step; absent where no line has them.
struct HistoryPoint {
  int64_t step = 0;
  int64_t time_ms = 0;  // wall time on the node; 0: unknown
  // True when nobody stamped the line: the time follows from its place in the output.
  bool time_is_estimate = false;
  std::optional<double> epoch, loss, eval_loss, learning_rate, grad_norm, tokens_per_s;

  bool empty() const {
    return !loss && !eval_loss && !learning_rate && !grad_norm && !tokens_per_s;
  }
};

class MetricHistory {
 public:
  // A longer history is thinned to points that are evenly far apart; evaluations stay.
  static constexpr size_t kMaxPoints = 200'000;

  explicit MetricHistory(size_t max_points = kMaxPoints) : max_points_(max_points) {}

  // Takes the samples in order. Lines of one step join. A resumed attempt repeats steps: its
  // numbers replace those of the lost attempt.
  void Add(const MetricSample& sample, bool time_is_estimate = false);

  // Returns the points by step, ascending.
  const std::vector<HistoryPoint>& points() const { return points_; }
  size_t max_points() const { return max_points_; }
  // True when points were left out.
  bool thinned() const { return thinned_; }

 private:
  HistoryPoint* PointOf(int64_t step, bool of_training);
  void Thin();

  size_t max_points_;
  std::vector<HistoryPoint> points_;
  bool thinned_ = false;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_HISTORY_METRIC_HISTORY_H_
