#include "client/history/own_metrics.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/bounded_json.h"
#include "common/metrics/metric_words.h"

namespace gpuctl {
namespace {

constexpr size_t kLongestName = 128;

// Returns the step that the line names; nothing when it names none.
std::optional<int64_t> StepOf(const nlohmann::json& json) {
  for (const auto& [name, value] : json.items()) {
    if (MetricKeyOf(name) != MetricKey::kStep || !value.is_number()) continue;
    MetricSample sample;
    SetNumber(MetricKey::kStep, value.get<double>(), sample);
    if (sample.step.has_value()) return sample.step;
  }
  return std::nullopt;
}

}  // namespace

void OwnMetrics::AddNumber(int64_t step, const std::string& name, double value) {
  if (name.empty() || name.size() > kLongestName) return;
  auto known = std::find(names_.begin(), names_.end(), name);
  if (known == names_.end()) {
    if (names_.size() == kMostNames) return;
    known = names_.insert(names_.end(), name);
  }
  if (steps_.size() == kMostSteps && steps_.count(step) == 0) return;
  steps_[step][static_cast<size_t>(known - names_.begin())] = value;
}

void OwnMetrics::Add(absl::string_view line) {
  const nlohmann::json json = ParseBoundedJson(line);
  if (!json.is_object()) return;
  const int64_t step = StepOf(json).value_or(last_step_);
  const auto stamp = json.find("gpuctl");
  if (stamp != json.end() && stamp->is_object() && stamp->contains("attempt") &&
      (*stamp)["attempt"].is_number_integer()) {
    const int64_t attempt = (*stamp)["attempt"].get<int64_t>();
    if (attempt > attempt_) steps_.erase(steps_.upper_bound(step), steps_.end());
    attempt_ = std::max(attempt_, attempt);
  }
  last_step_ = step;
  for (const auto& [name, value] : json.items()) {
    if (name == "gpuctl" || MetricKeyOf(name).has_value()) continue;
    if (value.is_number()) AddNumber(step, name, value.get<double>());
    if (!value.is_object()) continue;
    for (const auto& [inner, number] : value.items()) {
      if (number.is_number()) AddNumber(step, absl::StrCat(name, "/", inner), number.get<double>());
    }
  }
}

}  // namespace gpuctl
