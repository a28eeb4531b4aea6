#include "common/metrics/printed_bar.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/metrics/metric_words.h"

namespace gpuctl {
namespace {

constexpr auto kNone = absl::string_view::npos;

bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }

// A script may draw its bar a million times: the functions for numbers take them digit by digit.
std::optional<int64_t> ParseCount(absl::string_view text) {
  constexpr size_t kDigitsThatFit = 18;
  text = absl::StripAsciiWhitespace(text);
  if (text.empty() || text.size() > kDigitsThatFit) return std::nullopt;
  int64_t value = 0;
  for (const char c : text) {
    if (!IsDigit(c)) return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

// Returns how many times as many "k", "M" and "G" tell; 0 for other letters.
double ScaleOf(char letter) {
  switch (letter) {
    case 'k':
    case 'K':
      return 1e3;
    case 'M':
      return 1e6;
    case 'G':
      return 1e9;
    default:
      return 0;
  }
}

// Parses "84", and what tqdm prints with unit_scale: "1.28k", "10.0M", "5.00".
std::optional<int64_t> ParseScaledCount(absl::string_view text) {
  if (const std::optional<int64_t> count = ParseCount(text); count.has_value()) return count;
  text = absl::StripAsciiWhitespace(text);
  if (text.empty()) return std::nullopt;
  const double scale = ScaleOf(text.back());
  if (scale == 0 && !absl::StrContains(text, '.')) return std::nullopt;
  if (scale > 0) text.remove_suffix(1);
  if (text.empty() || text.size() > 12 || text.find_first_not_of("0123456789.") != kNone) {
    return std::nullopt;
  }
  const std::optional<double> value = ParseNumber(text);
  if (!value.has_value()) return std::nullopt;
  return static_cast<int64_t>(std::llround(*value * std::max(scale, 1.0)));
}

// Parses "84/200".
bool ParseCounts(absl::string_view text, PrintedBar& bar) {
  const size_t slash = text.find('/');
  if (slash == kNone) return false;
  const std::optional<int64_t> step = ParseScaledCount(text.substr(0, slash));
  const std::optional<int64_t> total = ParseScaledCount(text.substr(slash + 1));
  if (!step.has_value() || !total.has_value()) return false;
  bar.step = *step;
  bar.total = *total;
  return true;
}

// Parses "04:56", "1:04:56" and "56s".
std::optional<double> ParseSeconds(absl::string_view text) {
  constexpr int64_t kMostInPart = 1'000'000;
  text = absl::StripAsciiWhitespace(text);
  const bool seconds = absl::ConsumeSuffix(&text, "s");
  int64_t sum = 0, part = -1;
  int parts = 1;
  for (const char c : text) {
    if (IsDigit(c)) {
      part = std::max<int64_t>(part, 0) * 10 + (c - '0');
      if (part > kMostInPart) return std::nullopt;
      continue;
    }
    if (c != ':' || part < 0 || ++parts > 3) return std::nullopt;
    sum = (sum + part) * 60;
    part = -1;
  }
  if (part < 0 || (parts == 1 && !seconds)) return std::nullopt;
  return static_cast<double>(sum + part);
}

void ParseTimes(absl::string_view text, PrintedBar& bar) {
  const size_t less = text.find('<');
  bar.elapsed_s = ParseSeconds(text.substr(0, less));
  if (less != kNone) bar.remaining_s = ParseSeconds(text.substr(less + 1));
}

// Parses "it" out of "8.10it/s" and "1.23s/it".
absl::string_view UnitOf(absl::string_view rate) {
  rate = absl::StripAsciiWhitespace(rate);
  const size_t slash = rate.find('/');
  if (slash == kNone) return "";
  if (rate.substr(slash + 1) != "s") return rate.substr(slash + 1);
  absl::string_view unit = rate.substr(0, slash);
  while (!unit.empty() && (IsDigit(unit[0]) || unit[0] == '.' || unit[0] == '?')) {
    unit.remove_prefix(1);
  }
  if (unit.size() > 1 && ScaleOf(unit[0]) > 0) unit.remove_prefix(1);
  return absl::StripAsciiWhitespace(unit);
}

// Returns the offset of the ']' that belongs to the '[' at `open`.
size_t ClosingBracket(absl::string_view text, size_t open) {
  int depth = 0;
  for (size_t at = open; at < text.size(); ++at) {
    if (text[at] == '[') ++depth;
    if (text[at] == ']' && --depth == 0) return at;
  }
  return kNone;
}

// Parses "[00:10<00:14, 8.10it/s, loss=0.31]", whose '[' is at `open`.
bool ParseTqdmBracket(absl::string_view text, size_t open, PrintedBar& bar) {
  const size_t close = ClosingBracket(text, open);
  if (close == kNone) return false;
  absl::string_view inside = text.substr(open + 1, close - open - 1);
  const size_t comma = inside.find(',');
  ParseTimes(inside.substr(0, comma), bar);
  inside = comma == kNone ? absl::string_view() : inside.substr(comma + 1);
  const absl::string_view rate = inside.substr(0, inside.find(','));
  bar.unit = UnitOf(rate);
  bar.numbers = absl::StrContains(rate, "/") ? inside.substr(rate.size()) : inside;
  bar.end = close + 1;
  return true;
}

absl::string_view LabelBefore(absl::string_view text, size_t end) {
  const absl::string_view label = absl::StripAsciiWhitespace(text.substr(0, end));
  return absl::StripAsciiWhitespace(absl::StripSuffix(label, ":"));
}

// Parses " 42%|####      | 84/200 [00:10<00:14, 8.10it/s, loss=0.31]".
std::optional<PrintedBar> ParseTqdm(absl::string_view text) {
  PrintedBar bar;
  const size_t percent = text.find("%|");
  if (percent == kNone) return std::nullopt;
  const size_t bar_end = text.find('|', percent + 2);
  if (bar_end == kNone) return std::nullopt;
  const size_t open = text.find('[', bar_end);
  if (open == kNone || !ParseCounts(text.substr(bar_end + 1, open - bar_end - 1), bar)) {
    return std::nullopt;
  }
  size_t begin = percent;
  while (begin > 0 && (IsDigit(text[begin - 1]) || text[begin - 1] == '.')) --begin;
  bar.label = LabelBefore(text, begin);
  if (!ParseTqdmBracket(text, open, bar)) return std::nullopt;
  return bar;
}

// Parses "Epoch 1/3 : |███----| 45.00% [45/100 00:10<00:12 0.8932]"; the last number is the loss.
std::optional<PrintedBar> ParseFastprogress(absl::string_view text) {
  PrintedBar bar;
  const size_t percent = text.find("% [");
  const size_t begin = text.find('|');
  if (percent == kNone || begin == kNone || begin > percent) return std::nullopt;
  const size_t close = text.find(']', percent);
  if (close == kNone) return std::nullopt;
  const absl::string_view inside = text.substr(percent + 3, close - percent - 3);
  const std::vector<absl::string_view> parts = absl::StrSplit(inside, absl::MaxSplits(' ', 2));
  if (parts.size() < 2 || !ParseCounts(parts[0], bar)) return std::nullopt;
  ParseTimes(parts[1], bar);
  bar.label = LabelBefore(text, begin);
  if (parts.size() > 2) bar.numbers = parts[2];
  bar.end = close + 1;
  return bar;
}

// Parses "Train: 125it [00:10, 12.3it/s, loss=0.3]", a bar without an end.
std::optional<PrintedBar> ParseEndless(absl::string_view text) {
  PrintedBar bar;
  for (const absl::string_view unit : {"it [", "step [", "steps [", "batch ["}) {
    const size_t at = text.find(unit);
    if (at == kNone || at == 0) continue;
    size_t begin = ScaleOf(text[at - 1]) > 0 ? at - 1 : at;
    while (begin > 0 && (IsDigit(text[begin - 1]) || text[begin - 1] == '.')) --begin;
    const std::optional<int64_t> step = ParseScaledCount(text.substr(begin, at - begin));
    if (!step.has_value() || !ParseTqdmBracket(text, at + unit.size() - 1, bar)) continue;
    if (!bar.elapsed_s.has_value()) continue;
    bar.step = *step;
    bar.label = LabelBefore(text, begin);
    return bar;
  }
  return std::nullopt;
}

// True for "- 2s - 15ms/step - loss: 0.42", which Keras prints once an epoch with verbose=2.
bool IsKerasLine(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, "- ")) return false;
  return ParseSeconds(text.substr(0, text.find(' '))).has_value();
}

// Parses "125/125 ━━━━ 2s 15ms/step - loss: 0.42", Keras 2's "125/125 [====] - ETA: 0s - loss: 0.4"
// and the lines that they print without a bar. The time is the remaining one before
// the last step, and the whole one then.
std::optional<PrintedBar> ParseKeras(absl::string_view text) {
  const absl::string_view line = absl::StripLeadingAsciiWhitespace(text);
  if (line.empty() || !IsDigit(line[0])) return std::nullopt;
  const size_t space = line.find(' ');
  if (space == kNone || space + 2 > line.size()) return std::nullopt;
  const absl::string_view drawn = line.substr(space + 1);
  if (!absl::StartsWith(drawn, "━") && !absl::StartsWith(drawn, "[=") &&
      !absl::StartsWith(drawn, "[>") && !absl::StartsWith(drawn, "[.") && !IsKerasLine(drawn)) {
    return std::nullopt;
  }
  if (!absl::StrContains(drawn, "/step") && !absl::StrContains(drawn, "ETA:")) return std::nullopt;
  PrintedBar bar;
  if (!ParseCounts(line.substr(0, space), bar)) return std::nullopt;
  const size_t numbers = drawn.find(" - ");
  bar.numbers = numbers == kNone ? absl::string_view() : drawn.substr(numbers);
  for (const absl::string_view word : absl::StrSplit(drawn, ' ')) {
    const std::optional<double> seconds = ParseSeconds(word);
    if (!seconds.has_value()) continue;
    (bar.step < bar.total ? bar.remaining_s : bar.elapsed_s) = seconds;
    break;
  }
  bar.keras = true;
  bar.end = text.size();
  return bar;
}

// The words in a label that tell what its bar counts. "Class Images …" is YOLO's validation.
constexpr absl::string_view kHeldOutWords[] = {
    "val",        "valid",       "validation", "validate", "validating", "eval",    "evaluation",
    "evaluate",   "evaluating",  "test",       "testing",  "sanity",     "predict", "predicting",
    "prediction", "predictions", "inference",  "dev",      "class"};
constexpr absl::string_view kOtherWords[] = {
    "map",       "filter",     "flatten",       "downloading", "download",   "loading",
    "load",      "tokenizing", "tokenize",      "generating",  "saving",     "save",
    "fetching",  "casting",    "uploading",     "extracting",  "creating",   "computing",
    "preparing", "preprocess", "preprocessing", "processing",  "running",    "converting",
    "caching",   "scanning",   "resolving",     "unpacking",   "packing",    "adding",
    "grouping",  "dropping",   "plotting",      "reading",     "writing",    "copying",
    "indexing",  "encoding",   "sampling",      "merging",     "quantizing", "applying"};
constexpr absl::string_view kOtherUnits[] = {"examples", " examples", "ex",     "ba",    "file",
                                             "files",    "shard",     "shards", "doc",   "docs",
                                             "row",      "rows",      "table",  "tables"};

template <size_t kSize>
bool IsOneOf(absl::string_view word, const absl::string_view (&words)[kSize]) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

}  // namespace

std::optional<PrintedBar> ParseBar(absl::string_view text) {
  const bool has_percent = absl::StrContains(text, '%');
  if (has_percent) {
    if (std::optional<PrintedBar> bar = ParseTqdm(text); bar.has_value()) return bar;
  }
  if (std::optional<PrintedBar> bar = ParseKeras(text); bar.has_value()) return bar;
  if (!absl::StrContains(text, '[')) return std::nullopt;  // as both that follow have
  if (has_percent) {
    if (std::optional<PrintedBar> bar = ParseFastprogress(text); bar.has_value()) return bar;
  }
  return ParseEndless(text);
}

MetricSample SampleOfBar(const PrintedBar& bar) {
  MetricSample sample;
  ReadWords(bar.numbers, sample);
  if (!sample.loss.has_value()) {
    MetricSample label;
    ReadWords(bar.label, label);
    sample.loss = label.loss;
    const std::optional<double> alone = ParseNumber(bar.numbers);
    if (alone.has_value()) sample.loss = alone;
  }
  sample.step = bar.step;
  sample.total_steps.reset();
  if (bar.total > 0) sample.total_steps = bar.total;
  sample.elapsed_s = bar.elapsed_s;
  sample.remaining_s = bar.remaining_s;
  return sample;
}

std::optional<LabelEpoch> EpochOfLabel(absl::string_view label) {
  absl::string_view rest;
  if (const size_t at = label.find("poch"); at != kNone) {
    rest = label.substr(at + 4);
    while (!rest.empty() && absl::StrContains(" :[#=", absl::string_view(&rest[0], 1))) {
      rest.remove_prefix(1);
    }
  } else if (const size_t bar = label.find('|'); bar != kNone) {
    if (!absl::StrContains(label.substr(bar + 1), "|") || !ParseCount(label.substr(0, bar))) {
      return std::nullopt;
    }
    rest = label;
  } else {
    // YOLO's "1/100      2.35G      1.177 …"
    const absl::string_view word = label.substr(0, label.find(' '));
    if (word.size() == label.size() || !absl::StrContains(word, "/")) return std::nullopt;
    rest = label;
  }
  size_t digits = 0;
  while (digits < rest.size() && IsDigit(rest[digits])) ++digits;
  const std::optional<int64_t> epoch = ParseCount(rest.substr(0, digits));
  if (!epoch.has_value()) return std::nullopt;
  rest.remove_prefix(digits);
  LabelEpoch found{*epoch, -1};
  if (absl::ConsumePrefix(&rest, "/")) {
    digits = 0;
    while (digits < rest.size() && IsDigit(rest[digits])) ++digits;
    found.total = ParseCount(rest.substr(0, digits)).value_or(-1);
  }
  return found;
}

BarKind KindOfBar(const PrintedBar& bar) {
  if (IsOneOf(bar.unit, kOtherUnits) || absl::EndsWith(bar.unit, "B")) return BarKind::kOther;
  bool training = false;
  const std::string label = absl::AsciiStrToLower(bar.label);
  for (const absl::string_view word :
       absl::StrSplit(label, absl::ByAnyChar(" \t:_-/()[]"), absl::SkipEmpty())) {
    if (IsOneOf(word, kHeldOutWords)) return BarKind::kHeldOut;
    if (IsOneOf(word, kOtherWords)) return BarKind::kOther;
    training = training || absl::StartsWith(word, "train") || absl::StartsWith(word, "epoch") ||
               word == "step" || word == "steps" || absl::StartsWith(word, "iter");
  }
  return training ? BarKind::kTraining : BarKind::kUnknown;
}

std::string LabelKey(absl::string_view label) {
  std::string key;
  for (const char c : absl::AsciiStrToLower(label)) {
    if (absl::ascii_isalpha(static_cast<unsigned char>(c))) key.push_back(c);
  }
  const size_t loss = key.find("loss");
  return loss == std::string::npos ? key : key.substr(0, loss);
}

}  // namespace gpuctl
