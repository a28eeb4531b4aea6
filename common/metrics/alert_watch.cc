#include "common/metrics/alert_watch.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace gpuctl {
namespace {

using Test = StopCondition::Test;

constexpr const char* kMetrics[] = {"loss", "eval_loss", "grad_norm", "learning_rate",
                                    "tokens_per_s"};

std::optional<double> ValueOf(absl::string_view metric, const MetricSample& sample) {
  if (metric == "loss") return sample.loss;
  if (metric == "eval_loss") return sample.eval_loss;
  if (metric == "grad_norm") return sample.grad_norm;
  if (metric == "learning_rate") return sample.learning_rate;
  return metric == "tokens_per_s" ? sample.tokens_per_s : std::nullopt;
}

bool Holds(const StopCondition& condition, double value) {
  switch (condition.test) {
    case Test::kNan:
      return std::isnan(value);
    case Test::kInfinite:
      return std::isinf(value);
    case Test::kNotFinite:
      return !std::isfinite(value);
    case Test::kAbove:
      return value > condition.bound;
    case Test::kAtLeast:
      return value >= condition.bound;
    case Test::kBelow:
      return value < condition.bound;
    case Test::kAtMost:
      return value <= condition.bound;
  }
  return false;
}

std::string AtStep(const MetricSample& sample) {
  return sample.step.has_value() ? absl::StrCat(" at step ", *sample.step) : "";
}

absl::Status Wrong(absl::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text,
                   "\" is no condition; write \"loss is nan\", \"loss is not finite\" or \"loss > "
                   "20\""));
}

}  // namespace

absl::StatusOr<StopCondition> ParseStopCondition(absl::string_view text) {
  // Operators need no spaces around them.
  std::string spaced;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '<' && text[i] != '>') {
      spaced += text[i];
      continue;
    }
    const bool equal = i + 1 < text.size() && text[i + 1] == '=';
    absl::StrAppend(&spaced, " ", text.substr(i, equal ? 2 : 1), " ");
    i += equal ? 1 : 0;
  }
  std::vector<std::string> words =
      absl::StrSplit(absl::AsciiStrToLower(spaced), absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (words.size() < 3 || text.size() > 200) return Wrong(text);
  StopCondition condition;
  condition.text = absl::StrJoin(words, " ");
  condition.metric = words[0] == "lr" ? "learning_rate" : words[0];
  if (std::find(std::begin(kMetrics), std::end(kMetrics), condition.metric) == std::end(kMetrics)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", words[0], "\" is no metric; there are ", absl::StrJoin(kMetrics, ", ")));
  }
  words.erase(words.begin());
  const std::string rest = absl::StrJoin(words, " ");
  if (rest == "is nan" || rest == "is inf" || rest == "is not finite") {
    condition.test = rest == "is nan"   ? Test::kNan
                     : rest == "is inf" ? Test::kInfinite
                                        : Test::kNotFinite;
    return condition;
  }
  if (words.size() != 2 || !absl::SimpleAtod(words[1], &condition.bound) ||
      !std::isfinite(condition.bound)) {
    return Wrong(text);
  }
  const std::pair<const char*, Test> operators[] = {
      {">", Test::kAbove}, {">=", Test::kAtLeast}, {"<", Test::kBelow}, {"<=", Test::kAtMost}};
  for (const auto& [sign, test] : operators) {
    if (words[0] != sign) continue;
    condition.test = test;
    return condition;
  }
  return Wrong(text);
}

absl::Status CheckPlateau(const Plateau& plateau) {
  if (plateau.metric != "loss" && plateau.metric != "eval_loss") {
    return absl::InvalidArgumentError(
        absl::StrCat("plateau.metric: \"", plateau.metric, "\" is none of loss, eval_loss"));
  }
  if (plateau.steps < 1) {
    return absl::InvalidArgumentError("plateau.steps: how many steps without a lower value?");
  }
  if (!std::isfinite(plateau.min_delta) || plateau.min_delta < 0) {
    return absl::InvalidArgumentError("plateau.min_delta must be 0 or more");
  }
  return absl::OkStatus();
}

AlertWatch::AlertWatch(std::vector<StopCondition> conditions, std::vector<Plateau> plateaus)
    : conditions_(std::move(conditions)),
      plateaus_(std::move(plateaus)),
      falls_(plateaus_.size()) {}

std::optional<std::string> AlertWatch::Add(const MetricSample& sample) {
  for (const StopCondition& condition : conditions_) {
    const std::optional<double> value = ValueOf(condition.metric, sample);
    if (value.has_value() && Holds(condition, *value)) {
      return absl::StrCat(condition.text, AtStep(sample));
    }
  }
  for (size_t i = 0; i < plateaus_.size(); ++i) {
    if (std::optional<std::string> why = Add(sample, plateaus_[i], falls_[i])) return why;
  }
  return std::nullopt;
}

std::optional<std::string> AlertWatch::Add(const MetricSample& sample, const Plateau& plateau,
                                           Fall& fall) {
  const std::optional<double> value = ValueOf(plateau.metric, sample);
  if (!value.has_value() || sample.step_is_evaluations) return std::nullopt;
  const int64_t step = sample.step.value_or(++fall.without);
  if (fall.since < 0 || step < fall.since || *value < fall.lowest - plateau.min_delta) {
    // A step that went back is of a job that began again by itself.
    if (std::isfinite(*value) || fall.since < 0) {
      fall.lowest = std::isfinite(*value) ? *value : std::numeric_limits<double>::infinity();
      fall.since = step;
    }
    return std::nullopt;
  }
  if (step - fall.since < plateau.steps) return std::nullopt;
  return absl::StrCat(plateau.metric, " has not fallen for ", step - fall.since, " steps",
                      AtStep(sample));
}

}  // namespace gpuctl
