#include "client/metrics/metric_lines.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/bounded_json.h"

namespace gpuctl {
namespace {

enum class Key { kStep, kTotal, kEpoch, kLoss, kEvalLoss, kRate, kGradNorm, kTokens };

// Returns the meaning of a name, in lower case, that scripts use.
std::optional<Key> KeyOf(absl::string_view name) {
  const std::string key = absl::AsciiStrToLower(name);
  const absl::string_view k = key;
  if (k == "step" || k == "steps" || k == "global_step" || k == "iter" || k == "iteration") {
    return Key::kStep;
  }
  if (k == "total_steps" || k == "max_steps") return Key::kTotal;
  if (k == "epoch") return Key::kEpoch;
  if (k == "loss" || k == "train_loss" || k == "train/loss" || k == "training_loss") {
    return Key::kLoss;
  }
  if (k == "eval_loss" || k == "val_loss" || k == "eval/loss" || k == "val/loss" ||
      k == "validation_loss") {
    return Key::kEvalLoss;
  }
  if (k == "lr" || k == "learning_rate" || k == "train/learning_rate") return Key::kRate;
  if (k == "grad_norm" || k == "gnorm" || k == "train/grad_norm") return Key::kGradNorm;
  if (k == "tokens_per_s" || k == "tokens_per_sec" || k == "tokens_per_second" || k == "tok/s" ||
      k == "tokens/s" || k == "tps") {
    return Key::kTokens;
  }
  return std::nullopt;
}

bool IsCount(double value) { return value >= 0 && value < 9e15 && value == std::floor(value); }

void Set(Key key, double value, MetricSample& sample) {
  switch (key) {
    case Key::kStep:
      if (IsCount(value)) sample.step = static_cast<int64_t>(value);
      return;
    case Key::kTotal:
      if (IsCount(value)) sample.total_steps = static_cast<int64_t>(value);
      return;
    case Key::kEpoch:
      sample.epoch = value;
      return;
    case Key::kLoss:
      sample.loss = value;
      return;
    case Key::kEvalLoss:
      sample.eval_loss = value;
      return;
    case Key::kRate:
      sample.learning_rate = value;
      return;
    case Key::kGradNorm:
      sample.grad_norm = value;
      return;
    case Key::kTokens:
      sample.tokens_per_s = value;
      return;
  }
}

// Parses a number, possibly quoted as newer Trainers print it.
std::optional<double> NumberOf(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (text.size() >= 2 && (text[0] == '\'' || text[0] == '"') && text.back() == text[0]) {
    text = text.substr(1, text.size() - 2);
  }
  double value = 0;
  if (text.empty() || !absl::SimpleAtod(text, &value)) return std::nullopt;
  return value;
}

// Returns `line` with Python's NaN, Infinity and -Infinity, which JSON does not have, in quotes.
std::string QuoteNotFinite(absl::string_view line) {
  std::string quoted;
  bool in_string = false;
  for (size_t at = 0; at < line.size();) {
    if (in_string && line[at] == '\\') {
      absl::StrAppend(&quoted, line.substr(at, 2));
      at += 2;
      continue;
    }
    if (line[at] == '"') in_string = !in_string;
    absl::string_view word;
    for (const absl::string_view known : {"NaN", "Infinity", "-Infinity"}) {
      if (!in_string && absl::StartsWith(line.substr(at), known)) word = known;
    }
    if (word.empty()) {
      quoted.push_back(line[at++]);
    } else {
      absl::StrAppend(&quoted, "\"", word, "\"");
      at += word.size();
    }
  }
  return quoted;
}

// Parses a JSON line, also with Python's numbers that are not finite. Returns a discarded value when
// it is none.
nlohmann::json ParseJsonLine(absl::string_view line) {
  nlohmann::json json = ParseBoundedJson(line);
  if (!json.is_discarded() || !IsWithin(line, {})) return json;
  return ParseBoundedJson(QuoteNotFinite(line));
}

void SampleFromJson(const nlohmann::json& json, MetricSample& sample) {
  for (const auto& [name, value] : json.items()) {
    const std::optional<Key> key = KeyOf(name);
    if (!key.has_value()) continue;
    if (value.is_number()) {
      Set(*key, value.get<double>(), sample);
    } else if (value.is_string()) {
      const std::optional<double> number = NumberOf(value.get_ref<const std::string&>());
      if (number.has_value()) Set(*key, *number, sample);
    }
  }
  const auto type = json.find("type");
  if (type == json.end() || !type->is_string()) return;
  if (*type == "checkpoint") sample.checkpoint = true;
  // The built-in trainer's evaluation lines name the loss just "loss".
  if (*type == "eval" && sample.loss.has_value()) {
    sample.eval_loss = sample.loss;
    sample.loss.reset();
  }
}

// Reads {'loss': 0.5, 'learning_rate': 1e-05, 'epoch': '0.1'}: Python's dict, which is not JSON.
void SampleFromDict(absl::string_view line, MetricSample& sample) {
  line.remove_prefix(1);
  line.remove_suffix(1);
  for (const absl::string_view item : absl::StrSplit(line, ',')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(item, absl::MaxSplits(':', 1));
    absl::string_view name = absl::StripAsciiWhitespace(parts.first);
    if (name.size() < 3 || (name[0] != '\'' && name[0] != '"') || name.back() != name[0]) continue;
    name = name.substr(1, name.size() - 2);
    const std::optional<Key> key = KeyOf(name);
    const std::optional<double> number = NumberOf(parts.second);
    if (key.has_value() && number.has_value()) Set(*key, *number, sample);
  }
}

bool IsWordBreak(char c) {
  return c == ' ' || c == '\t' || c == ',' || c == '|' || c == ';' || c == '[' || c == ']' ||
         c == '(' || c == ')';
}

// Reads "step 10/200" and "step=10/200": the number and, after the slash, the total.
void SetFromWord(Key key, absl::string_view text, MetricSample& sample) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('/', 1));
  const std::optional<double> value = NumberOf(parts.first);
  if (!value.has_value()) return;
  Set(key, *value, sample);
  const std::optional<double> total = NumberOf(parts.second);
  if (key == Key::kStep && total.has_value()) Set(Key::kTotal, *total, sample);
}

// Reads "step=10 loss=0.5", "step 10: train loss 1.2, val loss 1.3", "iter 10: loss 2.3".
void SampleFromWords(absl::string_view line, MetricSample& sample) {
  Key pending = Key::kStep;
  bool has_pending = false;
  std::string previous;
  size_t at = 0;
  while (at < line.size()) {
    while (at < line.size() && IsWordBreak(line[at])) ++at;
    size_t end = at;
    while (end < line.size() && !IsWordBreak(line[end])) ++end;
    absl::string_view word = line.substr(at, end - at);
    at = end;
    if (word.empty()) break;
    if (const size_t equals = word.find_first_of("=:");
        equals != absl::string_view::npos && equals + 1 < word.size()) {
      const std::optional<Key> key = KeyOf(word.substr(0, equals));
      if (key.has_value()) SetFromWord(*key, word.substr(equals + 1), sample);
      has_pending = false;
      continue;
    }
    if (word.back() == ':' || word.back() == '=') word.remove_suffix(1);
    if (has_pending && NumberOf(word.substr(0, word.find('/'))).has_value()) {
      SetFromWord(pending, word, sample);
      has_pending = false;
      previous.clear();
      continue;
    }
    if (word.empty()) continue;
    const std::optional<Key> key = KeyOf(word);
    has_pending = key.has_value();
    pending = key.value_or(Key::kStep);
    const bool held_out = previous == "val" || previous == "eval" || previous == "validation";
    if (pending == Key::kLoss && held_out) pending = Key::kEvalLoss;
    previous = absl::AsciiStrToLower(word);
  }
}

// Reads " 42%|####      | 84/200 [00:10<00:14, 8.10it/s, loss=0.31]".
bool SampleFromBar(absl::string_view line, MetricSample& sample) {
  const size_t percent = line.find("%|");
  if (percent == absl::string_view::npos) return false;
  const size_t bar_end = line.find('|', percent + 2);
  const size_t bracket = line.find('[', percent);
  if (bar_end == absl::string_view::npos || bracket == absl::string_view::npos ||
      bracket < bar_end) {
    return false;
  }
  const std::pair<absl::string_view, absl::string_view> counts =
      absl::StrSplit(line.substr(bar_end + 1, bracket - bar_end - 1), absl::MaxSplits('/', 1));
  const std::optional<double> step = NumberOf(counts.first);
  const std::optional<double> total = NumberOf(counts.second);
  if (!step.has_value() || !total.has_value()) return false;
  SampleFromWords(line.substr(bracket), sample);
  Set(Key::kStep, *step, sample);
  Set(Key::kTotal, *total, sample);
  return true;
}

}  // namespace

bool MetricSample::empty() const {
  return !step && !total_steps && !epoch && !loss && !eval_loss && !learning_rate && !grad_norm &&
         !tokens_per_s && !checkpoint;
}

std::optional<MetricSample> ParseMetricLine(absl::string_view line) {
  line = absl::StripAsciiWhitespace(line);
  if (line.size() < 5 || line.size() > kMaxMetricLineBytes) return std::nullopt;
  MetricSample sample;
  if (line.front() == '{' && line.back() == '}') {
    const nlohmann::json json = ParseJsonLine(line);
    if (json.is_object()) {
      SampleFromJson(json, sample);
    } else {
      SampleFromDict(line, sample);
    }
  } else if (!SampleFromBar(line, sample)) {
    SampleFromWords(line, sample);
    // Words make a sample only with a loss: "step 3 of the installation" is none.
    if (!sample.loss.has_value() && !sample.eval_loss.has_value()) return std::nullopt;
  }
  if (sample.empty()) return std::nullopt;
  return sample;
}

std::optional<MetricSample> ParseMetricsJson(absl::string_view line) {
  if (line.size() > kMaxMetricLineBytes + 1024) return std::nullopt;
  const nlohmann::json json = ParseBoundedJson(line);
  if (!json.is_object()) return std::nullopt;
  MetricSample sample;
  SampleFromJson(json, sample);
  // The shim keeps a line that is not JSON as text.
  if (const auto text = json.find("text"); sample.empty() && text != json.end() && text->is_string()) {
    sample = ParseMetricLine(text->get_ref<const std::string&>()).value_or(MetricSample());
  }
  if (const auto stamp = json.find("gpuctl"); stamp != json.end() && stamp->is_object()) {
    const auto time = stamp->find("time_ms");
    if (time != stamp->end() && time->is_number_integer()) sample.time_ms = *time;
    const auto attempt = stamp->find("attempt");
    if (attempt != stamp->end() && attempt->is_number_integer() && *attempt >= 0 &&
        *attempt < 1'000'000) {
      sample.attempt = attempt->get<int>();
    }
  }
  if (sample.empty()) return std::nullopt;
  return sample;
}

std::optional<MetricSample> OutputMetrics::Add(absl::string_view line) {
  std::optional<MetricSample> merged;
  for (const absl::string_view piece : absl::StrSplit(line, '\r')) {
    std::optional<MetricSample> sample = ParseMetricLine(piece);
    if (!sample.has_value()) continue;
    if (absl::StrContains(piece, "%|")) {
      // Bars of downloads and tokenizing pass here too, but only the last bar before a loss
      // matters.
      bar_step_ = sample->step;
      bar_total_ = sample->total_steps;
    } else if (!sample->step.has_value() && bar_step_.has_value() &&
               (sample->loss.has_value() || sample->eval_loss.has_value())) {
      sample->step = bar_step_;
      sample->total_steps = bar_total_;
    }
    if (sample->loss.has_value() || sample->eval_loss.has_value() || !merged.has_value()) {
      merged = sample;
    }
  }
  return merged;
}

}  // namespace gpuctl
