#include "common/metrics/metric_words.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gpuctl {
namespace {

const absl::flat_hash_map<absl::string_view, MetricKey>& KnownNames() {
  // In lower case, with '_' for '/', '-' and '.'. A mean over an epoch ("train_loss_epoch") and a
  // part of an evaluation ("val_loss_step") are not among them.
  static const auto* const kNames = new absl::flat_hash_map<absl::string_view, MetricKey>{
      {"step", MetricKey::kStep},
      {"steps", MetricKey::kStep},
      {"global_step", MetricKey::kStep},
      {"train_step", MetricKey::kStep},
      {"training_step", MetricKey::kStep},
      {"iter", MetricKey::kStep},
      {"iteration", MetricKey::kStep},
      {"total_steps", MetricKey::kTotal},
      {"max_steps", MetricKey::kTotal},
      {"epoch", MetricKey::kEpoch},
      {"total_epochs", MetricKey::kTotalEpochs},
      {"loss", MetricKey::kLoss},
      {"loss_step", MetricKey::kLoss},
      {"loss_train", MetricKey::kLoss},
      {"train_loss", MetricKey::kLoss},
      {"train_loss_step", MetricKey::kLoss},
      {"training_loss", MetricKey::kLoss},
      {"training_loss_step", MetricKey::kLoss},
      {"lm_loss", MetricKey::kLoss},
      {"total_loss", MetricKey::kLoss},
      {"train_total_loss", MetricKey::kLoss},
      {"eval_loss", MetricKey::kEvalLoss},
      {"val_loss", MetricKey::kEvalLoss},
      {"val_loss_epoch", MetricKey::kEvalLoss},
      {"valid_loss", MetricKey::kEvalLoss},
      {"valid_loss_epoch", MetricKey::kEvalLoss},
      {"validation_loss", MetricKey::kEvalLoss},
      {"validation_loss_epoch", MetricKey::kEvalLoss},
      {"test_loss", MetricKey::kEvalLoss},
      {"loss_val", MetricKey::kEvalLoss},
      {"loss_valid", MetricKey::kEvalLoss},
      {"loss_eval", MetricKey::kEvalLoss},
      {"lr", MetricKey::kRate},
      {"learning_rate", MetricKey::kRate},
      {"train_lr", MetricKey::kRate},
      {"train_learning_rate", MetricKey::kRate},
      {"grad_norm", MetricKey::kGradNorm},
      {"gnorm", MetricKey::kGradNorm},
      {"train_grad_norm", MetricKey::kGradNorm},
      {"tokens_per_s", MetricKey::kTokens},
      {"tokens_per_sec", MetricKey::kTokens},
      {"tokens_per_second", MetricKey::kTokens},
      {"tokens_per_second_per_gpu", MetricKey::kTokens},
      {"tok_s", MetricKey::kTokens},
      {"tokens_s", MetricKey::kTokens},
      {"tps", MetricKey::kTokens}};
  return *kNames;
}

bool IsCount(double value) { return value >= 0 && value < 9e15 && value == std::floor(value); }

bool IsWordBreak(char c) {
  return c == ' ' || c == '\t' || c == ',' || c == '|' || c == ';' || c == '[' || c == ']' ||
         c == '(' || c == ')';
}

bool IsDigitAt(absl::string_view text, size_t at) {
  return at < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[at]));
}

// True when a word ends at `at`. A comma between digits is a part of the word.
bool IsWordEnd(absl::string_view line, size_t at) {
  if (!IsWordBreak(line[at])) return false;
  return line[at] != ',' || at == 0 || !IsDigitAt(line, at - 1) || !IsDigitAt(line, at + 1);
}

// Returns the digits of "12,341" or "12,341.60" without the commas; "" for any other text.
std::string WithoutSeparators(absl::string_view text) {
  const absl::string_view whole = text.substr(0, text.find('.'));
  const std::vector<absl::string_view> groups = absl::StrSplit(whole, ',');
  if (groups.size() < 2 || groups[0].empty() || groups[0].size() > 3 || groups[0][0] == '0') {
    return "";
  }
  std::string digits;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (i > 0 && groups[i].size() != 3) return "";
    for (size_t at = 0; at < groups[i].size(); ++at) {
      if (!IsDigitAt(groups[i], at)) return "";
    }
    digits.append(groups[i].data(), groups[i].size());
  }
  absl::StrAppend(&digits, text.substr(whole.size()));
  return digits;
}

// True for a name that says that what follows is of held-out data.
bool IsHeldOutName(absl::string_view name) {
  return name == "val" || name == "valid" || name == "validation" || name == "eval" ||
         name == "evaluation" || name == "test";
}

bool IsNameOfTheBest(absl::string_view name) {
  return absl::EqualsIgnoreCase(name, "best") || absl::EqualsIgnoreCase(name, "lowest");
}

// Reads the words of one line. A class because a number may belong to an earlier word.
class WordReader {
 public:
  explicit WordReader(MetricSample& sample) : sample_(sample) {}

  // False when the rest of the line tells nothing of the present step.
  bool goes_on() const { return !tells_of_earlier_; }

  void Add(absl::string_view word) {
    if (std::exchange(expects_total_, false)) {
      const std::optional<double> total = ParsePrintedNumber(MetricKey::kTotal, word);
      if (total.has_value()) return SetNumber(MetricKey::kTotal, *total, sample_);
    }
    // Python's logging writes "INFO:absl:epoch:".
    if (word.size() > 1 && word.back() == ':')
      word = word.substr(word.rfind(':', word.size() - 2) + 1);
    // Not find_first_of: that makes a table of all characters for each word.
    if (const size_t equals = std::min(word.find('='), word.find(':'));
        equals != absl::string_view::npos && equals + 1 < word.size()) {
      const std::optional<MetricKey> key = KeyHere(word.substr(0, equals));
      is_evaluations_ = IsHeldOutName(previous_);
      previous_.clear();
      if (key.has_value()) {
        SetCount(*key, word.substr(equals + 1));
      } else if (IsNameOfTheBest(word.substr(word.rfind(':') + 1))) {
        OnNameOfTheBest();  // Python's logging writes "INFO:root:Best"
      }
      pending_.reset();
      return;
    }
    if (word.back() == ':' || word.back() == '=') word.remove_suffix(1);
    if (word.empty()) return;
    if (pending_.has_value() &&
        ParsePrintedNumber(*pending_, word.substr(0, word.find('/'))).has_value()) {
      SetCount(*pending_, word);
      pending_.reset();
      return;
    }
    AddName(absl::AsciiStrToLower(word));
  }

 private:
  void AddName(std::string name) {
    if (pending_.has_value() && (name == "value" || name == "is")) return;
    if (IsHeldOutName(name)) held_out_ = true;
    if (name == "train" || name == "training") held_out_ = false;
    if ((name == "best" || name == "lowest") && previous_ != "new") OnNameOfTheBest();
    pending_ = KeyHere(name);
    if (previous_ == "learning" && name == "rate") pending_ = MetricKey::kRate;
    if (previous_ == "grad" && name == "norm") pending_ = MetricKey::kGradNorm;
    if (is_best_ && ParseNumber(name).has_value()) is_best_ = false;  // "best 1.9"
    is_evaluations_ = IsHeldOutName(previous_);
    previous_ = std::move(name);
  }

  std::optional<MetricKey> KeyHere(absl::string_view name) const {
    const std::optional<MetricKey> key = MetricKeyOf(name);
    return key == MetricKey::kLoss && held_out_ ? MetricKey::kEvalLoss : key;
  }

  // "Best val loss: 3.6 at step 400" tells of an earlier step. Where numbers come before it, as in
  // "step 500: loss 2.1, best loss 1.9", they are the present ones.
  void OnNameOfTheBest() {
    if (sample_.empty()) tells_of_earlier_ = true;
    is_best_ = true;
  }

  // Reads "10", "10/200" and "10/", whose total is the next word.
  void SetCount(MetricKey key, absl::string_view text) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(text, absl::MaxSplits('/', 1));
    const std::optional<double> value = ParsePrintedNumber(key, parts.first);
    if (!value.has_value() || std::exchange(is_best_, false)) return;
    SetNumber(key, *value, sample_);
    // In "val step 10/50" the evaluation counts its own steps.
    if (key == MetricKey::kStep) sample_.step_is_evaluations = is_evaluations_;
    const std::optional<double> total = ParsePrintedNumber(key, parts.second);
    expects_total_ = key == MetricKey::kStep && text.back() == '/';
    if (!total.has_value()) return;
    if (key == MetricKey::kStep) SetNumber(MetricKey::kTotal, *total, sample_);
    if (key == MetricKey::kEpoch) SetNumber(MetricKey::kTotalEpochs, *total, sample_);
  }

  MetricSample& sample_;
  std::optional<MetricKey> pending_;
  std::string previous_;
  bool held_out_ = false, expects_total_ = false;
  bool is_evaluations_ = false;    // the newest name is behind "val" or the like
  bool is_best_ = false;           // the next number is the best one
  bool tells_of_earlier_ = false;  // the whole line does
};

}  // namespace

std::optional<MetricKey> MetricKeyOf(absl::string_view name) {
  constexpr size_t kLongestName = 32;
  if (name.size() < 2 || name.size() > kLongestName) return std::nullopt;
  char key[kLongestName];
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = absl::ascii_tolower(static_cast<unsigned char>(name[i]));
    key[i] = c == '/' || c == '-' || c == '.' ? '_' : c;
  }
  const auto found = KnownNames().find(absl::string_view(key, name.size()));
  if (found == KnownNames().end()) return std::nullopt;
  return found->second;
}

void SetNumber(MetricKey key, double value, MetricSample& sample) {
  switch (key) {
    case MetricKey::kStep:
      if (IsCount(value)) sample.step = static_cast<int64_t>(value);
      return;
    case MetricKey::kTotal:
      if (IsCount(value)) sample.total_steps = static_cast<int64_t>(value);
      return;
    case MetricKey::kEpoch:
      sample.epoch = value;
      return;
    case MetricKey::kTotalEpochs:
      if (IsCount(value)) sample.total_epochs = static_cast<int64_t>(value);
      return;
    case MetricKey::kLoss:
      sample.loss = value;
      return;
    case MetricKey::kEvalLoss:
      sample.eval_loss = value;
      return;
    case MetricKey::kRate:
      sample.learning_rate = value;
      return;
    case MetricKey::kGradNorm:
      sample.grad_norm = value;
      return;
    case MetricKey::kTokens:
      sample.tokens_per_s = value;
      return;
  }
}

std::optional<double> ParseNumber(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (text.size() >= 2 && (text[0] == '\'' || text[0] == '"') && text.back() == text[0]) {
    text = text.substr(1, text.size() - 2);
  }
  double value = 0;
  if (text.empty() || !absl::SimpleAtod(text, &value)) return std::nullopt;
  return value;
}

std::optional<double> ParsePrintedNumber(MetricKey key, absl::string_view text) {
  const size_t comma = text.find(',');
  if (comma == absl::string_view::npos) return ParseNumber(text);
  const bool is_count =
      key == MetricKey::kStep || key == MetricKey::kTotal || key == MetricKey::kTotalEpochs;
  const bool has_point = absl::StrContains(text, '.');
  if (is_count || key == MetricKey::kEpoch || has_point) {
    if (const std::string digits = WithoutSeparators(text); !digits.empty()) {
      return ParseNumber(digits);
    }
  }
  if (!is_count && !has_point && text.rfind(',') == comma) {
    std::string with_point(text);
    with_point[comma] = '.';
    if (const auto value = ParseNumber(with_point); value.has_value()) return value;
  }
  return ParseNumber(text.substr(0, comma));
}

void ReadWords(absl::string_view line, MetricSample& sample) {
  WordReader reader(sample);
  size_t at = 0;
  while (at < line.size() && reader.goes_on()) {
    while (at < line.size() && IsWordBreak(line[at])) ++at;
    size_t end = at;
    while (end < line.size() && !IsWordEnd(line, end)) ++end;
    if (end > at) reader.Add(line.substr(at, end - at));
    at = end;
  }
}

}  // namespace gpuctl
