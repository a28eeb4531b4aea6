#include "common/metrics/metric_lines.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/bounded_json.h"
#include "common/metrics/metric_words.h"
#include "common/metrics/printed_bar.h"

namespace gpuctl {
namespace {

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

// Parses a JSON line, also with Python's numbers that are not finite. Returns a discarded value
// when it is none.
nlohmann::json ParseJsonLine(absl::string_view line) {
  nlohmann::json json = ParseBoundedJson(line);
  if (!json.is_discarded() || !IsWithin(line, {})) return json;
  return ParseBoundedJson(QuoteNotFinite(line));
}

void SampleFromJson(const nlohmann::json& json, MetricSample& sample) {
  for (const auto& [name, value] : json.items()) {
    const std::optional<MetricKey> key = MetricKeyOf(name);
    if (!key.has_value()) continue;
    if (value.is_number()) {
      SetNumber(*key, value.get<double>(), sample);
    } else if (value.is_string()) {
      const std::optional<double> number = ParseNumber(value.get_ref<const std::string&>());
      if (number.has_value()) SetNumber(*key, *number, sample);
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

// True when a Trainer printed `line` at its end: the loss in it is the mean of all steps.
bool IsSummary(absl::string_view line) { return absl::StrContains(line, "train_runtime"); }

// Reads the mean out of timm's "Test: [  48/48]  Loss:  6.3000 (6.4000)": each line of an
// evaluation has the mean up to it, and only the last one is the evaluation's.
void ReadHeldOutCount(absl::string_view line, MetricSample& sample) {
  if (!absl::StartsWith(line, "Test") && !absl::StartsWith(line, "Val")) return;
  const size_t open = line.find('[');
  if (open == absl::string_view::npos || !sample.eval_loss.has_value()) return;
  const absl::string_view inside = line.substr(open + 1, line.find(']', open) - open - 1);
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(inside, absl::MaxSplits('/', 1));
  const std::optional<double> step = ParseNumber(parts.first);
  const std::optional<double> total = ParseNumber(parts.second);
  if (!step.has_value() || !total.has_value()) return;
  if (*step + 1 < *total) return sample.eval_loss.reset();
  const size_t loss = line.find("oss", open);
  if (loss == absl::string_view::npos) return;
  const size_t mean = line.find('(', loss);
  if (mean == absl::string_view::npos) return;
  const std::optional<double> value =
      ParseNumber(line.substr(mean + 1, line.find(')', mean) - mean - 1));
  if (value.has_value()) sample.eval_loss = value;
}

// Reads timm's "Train: 0 [ 50/1251 (  4%)]", torchvision's "Epoch: [0]  [ 50/1251]" and "loss: 2.30
// [   64/60000]" of PyTorch's first steps.
void ReadBracketedCount(absl::string_view line, MetricSample& sample) {
  const bool ends_with_it = absl::StartsWith(line, "loss") && absl::EndsWith(line, "]");
  if (!ends_with_it && !absl::StrContains(line, "rain") && !absl::StrContains(line, "poch")) return;
  for (size_t at = line.find('['); at != absl::string_view::npos; at = line.find('[', at + 1)) {
    const absl::string_view inside = line.substr(at + 1, line.find_first_of("](", at) - at - 1);
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(inside, absl::MaxSplits('/', 1));
    const std::optional<double> step = ParsePrintedNumber(MetricKey::kStep, parts.first);
    const std::optional<double> total = ParsePrintedNumber(MetricKey::kTotal, parts.second);
    if (!step.has_value() || !total.has_value()) continue;
    const absl::string_view before = absl::StripAsciiWhitespace(line.substr(0, at));
    const absl::string_view word = before.substr(before.find_last_of(" \t") + 1);
    if (MetricKeyOf(absl::StripSuffix(word, ":")).has_value()) continue;  // "Epoch [1/10]"
    SetNumber(MetricKey::kStep, *step, sample);
    SetNumber(MetricKey::kTotal, *total, sample);
    if (const std::optional<double> epoch = ParseNumber(word); epoch.has_value()) {
      SetNumber(MetricKey::kEpoch, *epoch, sample);
    }
    return;
  }
}

// Reads the step of clu's "… logging_writer.py:48] [100] loss=2.3, learning_rate=0.1".
void ReadLoggedStep(absl::string_view line, MetricSample& sample) {
  const size_t begin = line.find("] [");
  if (begin == absl::string_view::npos) return;
  const absl::string_view rest = line.substr(begin + 3);
  const size_t end = rest.find(']');
  if (end == absl::string_view::npos || sample.step.has_value()) return;
  const absl::string_view next = absl::StripLeadingAsciiWhitespace(rest.substr(end + 1));
  const std::optional<double> step = ParseNumber(rest.substr(0, end));
  if (step.has_value() && absl::StrContains(next.substr(0, next.find(' ')), "=")) {
    SetNumber(MetricKey::kStep, *step, sample);
  }
}

// Returns the part of a log line that is a dict, such as the end of "INFO … >> {'loss': 1.2}".
absl::string_view DictOf(absl::string_view line) {
  if (line.empty() || line.back() != '}') return "";
  if (line.front() == '{') return line;
  for (const absl::string_view open : {" {'", " {\""}) {
    if (const size_t at = line.find(open); at != absl::string_view::npos)
      return line.substr(at + 1);
  }
  return "";
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
    const std::optional<MetricKey> key = MetricKeyOf(name);
    const std::optional<double> number = ParseNumber(parts.second);
    if (key.has_value() && number.has_value()) SetNumber(*key, *number, sample);
  }
}

}  // namespace

bool MetricSample::empty() const {
  return !step && !total_steps && !epoch && !loss && !eval_loss && !learning_rate && !grad_norm &&
         !tokens_per_s && !remaining_s && !checkpoint;
}

std::optional<MetricSample> ParseMetricLine(absl::string_view line) {
  line = absl::StripAsciiWhitespace(line);
  if (line.size() < 5 || line.size() > kMaxMetricLineBytes) return std::nullopt;
  MetricSample sample;
  if (const absl::string_view dict = DictOf(line); !dict.empty()) {
    // Python's names are in single quotes; no JSON begins so.
    const bool pythons = absl::StartsWith(dict, "{'");
    const nlohmann::json json = pythons ? nlohmann::json() : ParseJsonLine(dict);
    if (json.is_object()) {
      SampleFromJson(json, sample);
    } else {
      SampleFromDict(dict, sample);
    }
    if (IsSummary(dict)) sample.loss.reset();
  } else if (const std::optional<PrintedBar> bar = ParseBar(line); bar.has_value()) {
    sample = SampleOfBar(*bar);
  } else {
    ReadWords(line, sample);
    ReadBracketedCount(line, sample);
    ReadHeldOutCount(line, sample);
    ReadLoggedStep(line, sample);
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
  if (const auto text = json.find("text");
      sample.empty() && text != json.end() && text->is_string()) {
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

}  // namespace gpuctl
