#include "client/batch/batch_results.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/bounded_json.h"

namespace gpuctl {
namespace {

// Anywhere in a name. Of a name with words of both kinds the first kind counts: score_loss.
constexpr const char* kLowerIsBetter[] = {"loss", "error",   "perplex",      "rmse",
                                          "norm", "latency", "learning_rate"};
constexpr const char* kHigherIsBetter[] = {
    "acc",  "f1",      "reward", "bleu",        "rouge",      "auc",    "score",
    "iou",  "recall",  "precis", "exact_match", "per_s",      "return", "dice",
    "ndcg", "success", "psnr",   "ssim",        "throughput", "meteor", "spearman"};
// Only as the beginning of a word: they are parts of other words.
constexpr const char* kLowerWords[] = {"err", "ppl", "mae", "mse", "wer", "cer", "nll",
                                       "bpb", "bpc", "ece", "fid", "lr",  "time"};
constexpr const char* kHigherWords[] = {"win", "hit", "map", "top", "pass",
                                        "mrr", "elo", "r2",  "ap",  "em"};

// True when a word of `name`, in lower case, begins with one of `words`, with at most digits
// behind it.
template <size_t N>
bool HasWord(absl::string_view name, const char* const (&words)[N]) {
  for (absl::string_view part : absl::StrSplit(name, absl::ByAnyChar("/._-@ "))) {
    for (const char* word : words) {
      absl::string_view rest = part;
      if (absl::ConsumePrefix(&rest, word) &&
          std::all_of(rest.begin(), rest.end(), absl::ascii_isdigit)) {
        return true;
      }
    }
  }
  return false;
}
template <size_t N>
bool Contains(absl::string_view name, const char* const (&words)[N]) {
  return std::any_of(std::begin(words), std::end(words),
                     [name](const char* word) { return absl::StrContains(name, word); });
}

bool IsBetter(double value, double than, MetricGoal goal) {
  return goal == MetricGoal::kLowest ? value < than : value > than;
}

}  // namespace

std::optional<MetricGoal> UsualGoal(absl::string_view metric) {
  const std::string name = absl::AsciiStrToLower(metric);
  if (Contains(name, kLowerIsBetter) || HasWord(name, kLowerWords)) return MetricGoal::kLowest;
  if (Contains(name, kHigherIsBetter) || HasWord(name, kHigherWords)) return MetricGoal::kHighest;
  return std::nullopt;
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
