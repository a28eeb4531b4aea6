#include "client/history/gpu_history.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gpuctl {
namespace {

constexpr int64_t kBeforeFirstMs = 60'000;
// Steps that are shorter than the second between two lines share a line.
constexpr int64_t kNearMs = 3000;

}  // namespace

std::optional<double> GpuHistory::Group::Mean(Number number) const {
  double sum = 0;
  int count = 0;
  for (const auto& gpu : gpus) {
    if (std::isnan(gpu[number])) continue;
    sum += static_cast<double>(gpu[number]);
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / count;
}

GpuHistory::GpuHistory(const MetricHistory& history) : points_(history.points()) {
  for (const HistoryPoint& point : points_) {
    if (point.time_ms <= 0) continue;
    if (first_ms_ == 0) first_ms_ = point.time_ms;
    last_ms_ = std::max(last_ms_, point.time_ms);
  }
}

void GpuHistory::Begin(int64_t step) {
  Finish();
  open_ = true;
  group_ = Group();
  group_.step = step;
  sums_.clear();
}

void GpuHistory::Add(const TelemetrySample& sample) {
  if (sample.gpus.empty() || first_ms_ == 0 || sample.time_ms <= first_ms_ - kBeforeFirstMs ||
      sample.time_ms > last_ms_) {
    return;
  }
  while (next_ < points_.size() && points_[next_].time_ms < sample.time_ms) ++next_;
  if (next_ >= points_.size()) return;
  if (!open_ || group_.step != points_[next_].step) Begin(points_[next_].step);
  group_.time_ms = std::max(group_.time_ms, sample.time_ms);
  for (size_t i = 0; i < std::min(sample.gpus.size(), kMaxGpus); ++i) {
    if (sums_.size() <= i) sums_.emplace_back();
    const TelemetrySample::Gpu& gpu = sample.gpus[i];
    const std::optional<double>* const values[kNumbers] = {
        &gpu.utilization_percent, &gpu.memory_used_bytes, &gpu.power_w, &gpu.temperature_c};
    for (size_t number = 0; number < kNumbers; ++number) {
      const std::optional<double>& value = *values[number];
      if (!value.has_value() || !std::isfinite(*value)) continue;
      sums_[i][number].sum += *value;
      ++sums_[i][number].count;
    }
  }
}

void GpuHistory::Finish() {
  if (!open_) return;
  open_ = false;
  for (const auto& sums : sums_) {
    auto& means = group_.gpus.emplace_back();
    for (size_t number = 0; number < kNumbers; ++number) {
      means[number] =
          sums[number].count == 0
              ? std::numeric_limits<float>::quiet_NaN()
              : static_cast<float>(sums[number].sum / static_cast<double>(sums[number].count));
    }
  }
  groups_.push_back(std::move(group_));
}

std::optional<double> GpuHistory::UtilizationAt(const HistoryPoint& point) const {
  if (point.time_ms <= 0) return std::nullopt;
  auto found = std::lower_bound(groups_.begin(), groups_.end(), point.step,
                                [](const Group& group, int64_t step) { return group.step < step; });
  const bool later = found != groups_.end() &&
                     (found->step == point.step || found->time_ms <= point.time_ms + kNearMs);
  if (!later) {
    if (found == groups_.begin()) return std::nullopt;
    --found;
    if (found->time_ms < point.time_ms - kNearMs) return std::nullopt;
  }
  return found->Mean(kUtilization);
}

}  // namespace gpuctl
