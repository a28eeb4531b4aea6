#include "client/dashboard/gpu_series.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gpuctl {
namespace {

std::optional<double> Between(const std::optional<double>& a, const std::optional<double>& b) {
  if (!a.has_value() || !b.has_value()) return a.has_value() ? a : b;
  return (*a + *b) / 2;
}

std::optional<double> Larger(const std::optional<double>& a, const std::optional<double>& b) {
  if (!a.has_value() || !b.has_value()) return a.has_value() ? a : b;
  return std::max(*a, *b);
}

}  // namespace

void GpuSeries::Sum::Add(const std::optional<double>& value) {
  if (!value.has_value() || !std::isfinite(*value)) return;
  sum += *value;
  ++count;
}

std::optional<double> GpuSeries::Sum::Mean() const {
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

void GpuSeries::Add(const TelemetrySample& sample) {
  if (sample.time_ms <= last_ms_) return;
  last_ms_ = sample.time_ms;
  Sum utilization, memory_used, memory_total, power;
  std::optional<double> temperature;
  for (const TelemetrySample::Gpu& gpu : sample.gpus) {
    utilization.Add(gpu.utilization_percent);
    memory_used.Add(gpu.memory_used_bytes);
    memory_total.Add(gpu.memory_total_bytes);
    power.Add(gpu.power_w);
    if (gpu.temperature_c.has_value() && std::isfinite(*gpu.temperature_c)) {
      temperature = Larger(temperature, gpu.temperature_c);
    }
  }
  if (points_.empty() || lines_ >= lines_each_) {
    if (points_.size() >= kMostPoints) Thin();
    points_.emplace_back().time_ms = sample.time_ms;
    lines_ = 0;
    utilization_ = memory_ = power_ = Sum();
  }
  ++lines_;
  utilization_.Add(utilization.Mean());
  if (memory_total.sum > 0) memory_.Add(100 * memory_used.sum / memory_total.sum);
  if (power.count > 0) power_.Add(power.sum);
  GpuPoint& point = points_.back();
  point.utilization_percent = utilization_.Mean();
  point.memory_percent = memory_.Mean();
  point.power_w = power_.Mean();
  point.temperature_c = Larger(point.temperature_c, temperature);
  changed_ = std::min(changed_, points_.size() - 1);
}

void GpuSeries::Thin() {
  size_t kept = 0;
  for (size_t i = 0; i < points_.size(); i += 2) {
    GpuPoint point = points_[i];
    if (i + 1 < points_.size()) {
      const GpuPoint& next = points_[i + 1];
      point.utilization_percent = Between(point.utilization_percent, next.utilization_percent);
      point.memory_percent = Between(point.memory_percent, next.memory_percent);
      point.power_w = Between(point.power_w, next.power_w);
      point.temperature_c = Larger(point.temperature_c, next.temperature_c);
    }
    points_[kept++] = point;
  }
  points_.resize(kept);
  lines_each_ *= 2;
  changed_ = 0;
}

size_t GpuSeries::TakeChanged() {
  return std::min(std::exchange(changed_, points_.size()), points_.size());
}

}  // namespace gpuctl
