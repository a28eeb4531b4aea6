#include "client/history/own_metrics.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/bounded_json.h"
#include "common/metrics/metric_words.h"

namespace gpuctl {
namespace {

constexpr size_t kLongestName = 128;
constexpr absl::string_view kStamp = "gpuctl";  // what the shim adds to a line

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

// Calls `take` with each number of a line that has no meaning for gpuctl.
template <typename Take>
void ForEachOwn(const nlohmann::json& json, const Take& take) {
  for (const auto& [name, value] : json.items()) {
    if (name == kStamp || MetricKeyOf(name).has_value()) continue;
    if (value.is_number()) take(name, value.template get<double>());
    if (!value.is_object()) continue;
    for (const auto& [inner, number] : value.items()) {
      if (number.is_number()) take(absl::StrCat(name, "/", inner), number.template get<double>());
    }
  }
}

// Returns false when all keys of a line of JSON are gpuctl's, so that it need not be parsed.
bool HasOtherKeys(absl::string_view line) {
  while (true) {
    const size_t begin = line.find('"');
    if (begin == absl::string_view::npos) return false;
    line.remove_prefix(begin + 1);
    const size_t end = line.find_first_of("\"\\");
    if (end == absl::string_view::npos || line[end] == '\\') return true;
    const absl::string_view text = line.substr(0, end);
    line.remove_prefix(end + 1);
    const size_t next = line.find_first_not_of(" \t");
    if (next == absl::string_view::npos || line[next] != ':') continue;
    const bool ours = text == kStamp || text == "time_ms" || text == "attempt" || text == "type";
    if (!ours && !MetricKeyOf(text).has_value()) return true;
  }
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
  ForEachOwn(json, [&](const std::string& name, double value) { AddNumber(step, name, value); });
}

void NewestOwn::Add(absl::string_view line) {
  if (!HasOtherKeys(line)) return;
  const nlohmann::json json = ParseBoundedJson(line);
  if (!json.is_object()) return;
  const auto type = json.find("type");
  if (type != json.end() && type->is_string() &&
      absl::StartsWith(type->get_ref<const std::string&>(), "checkpoint")) {
    return;
  }
  bool any = false;
  ForEachOwn(json, [&](const std::string& name, double value) {
    if (name.empty() || name.size() > kLongestName) return;
    const auto known = std::find_if(seen_.begin(), seen_.end(),
                                    [&name](const Seen& seen) { return seen.number.name == name; });
    if (known == seen_.end() && seen_.size() == OwnMetrics::kMostNames) return;
    Seen& seen = known == seen_.end() ? seen_.emplace_back() : *known;
    seen = {{name, value}, lines_ + 1};
    any = true;
  });
  lines_ += any ? 1 : 0;
}

std::vector<OwnNumber> NewestOwn::NewestMeasured(size_t most) const {
  std::vector<OwnNumber> measured;
  for (OwnNumber& number : Newest()) {
    const std::string& name = number.name;
    if (name == "tokens" || name == "memory_bytes" || name == "seconds") continue;
    if (measured.size() < most) measured.push_back(std::move(number));
  }
  return measured;
}

std::vector<OwnNumber> NewestOwn::Newest(size_t most) const {
  std::vector<Seen> sorted = seen_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Seen& a, const Seen& b) { return a.line > b.line; });
  std::vector<OwnNumber> numbers;
  for (size_t i = 0; i < std::min(most, sorted.size()); ++i) numbers.push_back(sorted[i].number);
  return numbers;
}

}  // namespace gpuctl
