#include "client/metrics/progress.h"
#include "common/base/bounded_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace gpuctl {
namespace {

constexpr size_t kMaxPoints = 8192;

std::optional<double> NumberField(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

// Returns a short text; the beginning of one that nobody needs whole.
std::string TextField(const nlohmann::json& json, const char* key) {
  constexpr size_t kLongest = 100;
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) return "";
  return found->get_ref<const std::string&>().substr(0, kLongest);
}

}  // namespace

void TrainingProgress::AddPoint(double x, double y, std::vector<PlotPoint>& points) {
  // A resumed attempt repeats steps: its values replace those of the lost attempt.
  while (!points.empty() && points.back().x >= x) points.pop_back();
  points.push_back({x, y});
  if (points.size() < kMaxPoints) return;
  // Keeps points that are evenly far apart, about half of them at most. Every second one would not
  // do: the first part of a long curve would be halved again and again, and its last part never.
  const double gap = 2 * (points.back().x - points.front().x) / kMaxPoints;
  const PlotPoint last = points.back();
  size_t kept = 1;
  for (const PlotPoint& point : points) {
    if (point.x >= points[kept - 1].x + gap) points[kept++] = point;
  }
  points.resize(kept);
  if (points.back().x < last.x) points.push_back(last);
}

void TrainingProgress::Add(const MetricSample& sample) {
  if (sample.total_steps.has_value()) total_steps_ = *sample.total_steps;
  if (sample.epoch.has_value()) epoch_ = sample.epoch;
  if (sample.total_epochs.has_value()) total_epochs_ = *sample.total_epochs;
  if (sample.remaining_s.has_value()) {
    remaining_s_ = sample.remaining_s;
    remaining_is_of_epoch_ = sample.remaining_is_of_epoch;
  }
  if (sample.checkpoint) {
    if (sample.step.has_value()) checkpoint_step_ = *sample.step;
    return;
  }
  if (sample.eval_loss.has_value()) {
    eval_loss_ = sample.eval_loss;
    if (const int64_t step = sample.step.value_or(step_); step >= 0) {
      AddPoint(static_cast<double>(step), *sample.eval_loss, eval_losses_);
    } else if (!losses_.empty()) {
      AddPoint(losses_.back().x, *sample.eval_loss, eval_losses_);
    }
  }
  if (sample.step.has_value()) {
    if (sample.attempt != attempt_ || *sample.step < step_ || first_step_ < 0) {
      attempt_ = sample.attempt;
      first_step_ = *sample.step;
      first_ms_ = sample.time_ms;
    }
    step_ = *sample.step;
    last_ms_ = sample.time_ms;
  }
  if (sample.loss.has_value()) {
    loss_ = sample.loss;
    // A script that prints no steps still gets a curve, over the count of its lines.
    const double x = sample.step.has_value() ? static_cast<double>(*sample.step)
                     : losses_.empty()       ? 0
                                             : losses_.back().x + 1;
    AddPoint(x, *sample.loss, losses_);
  }
  if (sample.learning_rate.has_value()) learning_rate_ = sample.learning_rate;
  if (sample.grad_norm.has_value()) grad_norm_ = sample.grad_norm;
  if (sample.tokens_per_s.has_value()) tokens_per_s_ = sample.tokens_per_s;
}

std::vector<double> TrainingProgress::LossValues() const {
  std::vector<double> values;
  values.reserve(losses_.size());
  for (const PlotPoint& point : losses_) values.push_back(point.y);
  return values;
}

std::optional<absl::Duration> TrainingProgress::Eta() const {
  if (total_steps_ <= step_) return std::nullopt;
  if (step_ <= first_step_ || last_ms_ <= first_ms_ || first_ms_ == 0) {
    if (!remaining_s_.has_value() || remaining_is_of_epoch_) return std::nullopt;
    return absl::Seconds(*remaining_s_);
  }
  const double ms_per_step =
      static_cast<double>(last_ms_ - first_ms_) / static_cast<double>(step_ - first_step_);
  return absl::Milliseconds(ms_per_step * static_cast<double>(total_steps_ - step_));
}

std::optional<absl::Duration> TrainingProgress::EpochEta() const {
  if (!remaining_s_.has_value() || !remaining_is_of_epoch_) return std::nullopt;
  return absl::Seconds(*remaining_s_);
}

std::optional<TelemetrySample> ParseTelemetry(absl::string_view line) {
  const nlohmann::json json = ParseBoundedJson(line);
  if (!json.is_object()) return std::nullopt;
  TelemetrySample sample;
  if (const auto time = NumberField(json, "time_ms"); time.has_value() && std::fabs(*time) < 9e15) {
    sample.time_ms = static_cast<int64_t>(*time);
  }
  sample.cpu_percent = NumberField(json, "cpu_percent");
  sample.memory_used_bytes = NumberField(json, "memory_used_bytes");
  sample.memory_total_bytes = NumberField(json, "memory_total_bytes");
  const auto gpus = json.find("gpus");
  if (gpus == json.end() || !gpus->is_array()) return sample;
  for (const nlohmann::json& gpu : *gpus) {
    if (!gpu.is_object() || sample.gpus.size() >= 64) continue;
    sample.gpus.push_back({NumberField(gpu, "utilization_percent"),
                           NumberField(gpu, "memory_used_bytes"),
                           NumberField(gpu, "memory_total_bytes"), NumberField(gpu, "power_w"),
                           NumberField(gpu, "temperature_c"), TextField(gpu, "name"),
                           TextField(gpu, "driver_version")});
  }
  return sample;
}

}  // namespace gpuctl
