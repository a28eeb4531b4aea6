#include "client/batch/batch_results.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/bounded_json.h"

namespace gpuctl {
namespace {

constexpr std::array<const char*, 12> kHigherIsBetter = {
    "acc",   "f1",  "reward", "bleu",   "rouge", "auc",
    "score", "iou", "recall", "precis", "win",   "exact_match"};

bool IsBetter(double value, double than, MetricGoal goal) {
  return goal == MetricGoal::kLowest ? value < than : value > than;
}

}  // namespace

MetricGoal UsualGoal(absl::string_view metric) {
  const std::string name = absl::AsciiStrToLower(metric);
  for (const char* word : kHigherIsBetter) {
    if (absl::StrContains(name, word)) return MetricGoal::kHighest;
  }
  return MetricGoal::kLowest;
}

void MetricValues::Add(double value, MetricGoal goal, std::optional<int64_t> step) {
  last = value;
  if (!std::isfinite(value) || (best.has_value() && !IsBetter(value, *best, goal))) return;
  best = value;
  best_step = step;
}

std::optional<size_t> BestRun(const std::vector<MetricValues>& runs, MetricGoal goal) {
  std::optional<size_t> best;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].best.has_value()) continue;
    if (!best.has_value() || IsBetter(*runs[i].best, *runs[*best].best, goal)) best = i;
  }
  return best;
}

std::optional<double> MetricInJson(absl::string_view line, absl::string_view metric) {
  if (!absl::StrContains(line, metric.substr(0, metric.find_first_of("/.")))) return std::nullopt;
  const nlohmann::json json = ParseBoundedJson(line);
  const nlohmann::json* at = &json;
  absl::string_view rest = metric;
  while (at->is_object()) {
    const auto whole = at->find(std::string(rest));
    if (whole != at->end()) {
      if (!whole->is_number()) return std::nullopt;
      return whole->get<double>();
    }
    const size_t cut = rest.find_first_of("/.");
    if (cut == rest.npos) return std::nullopt;
    const auto part = at->find(std::string(rest.substr(0, cut)));
    if (part == at->end()) return std::nullopt;
    at = &*part;
    rest.remove_prefix(cut + 1);
  }
  return std::nullopt;
}

std::string CsvCell(absl::string_view text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return std::string(text);
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

}  // namespace gpuctl
