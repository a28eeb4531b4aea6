#include "client/metrics/metric_words.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
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

// Reads the words of one line. A class because a number may belong to an earlier word.
class WordReader {
 public:
  explicit WordReader(MetricSample& sample) : sample_(sample) {}

  void Add(absl::string_view word) {
    if (std::exchange(expects_total_, false) && ParseNumber(word).has_value()) {
      SetNumber(MetricKey::kTotal, *ParseNumber(word), sample_);
      return;
    }
    // Python's logging writes "INFO:absl:epoch:".
    if (word.size() > 1 && word.back() == ':')
      word = word.substr(word.rfind(':', word.size() - 2) + 1);
    if (const size_t equals = word.find_first_of("=:");
        equals != absl::string_view::npos && equals + 1 < word.size()) {
      const std::optional<MetricKey> key = KeyHere(word.substr(0, equals));
      if (key.has_value()) SetCount(*key, word.substr(equals + 1));
      pending_.reset();
      return;
    }
    if (word.back() == ':' || word.back() == '=') word.remove_suffix(1);
    if (word.empty()) return;
    if (pending_.has_value() && ParseNumber(word.substr(0, word.find('/'))).has_value()) {
      SetCount(*pending_, word);
      pending_.reset();
      previous_.clear();
      return;
    }
    AddName(absl::AsciiStrToLower(word));
  }

 private:
  void AddName(std::string name) {
    if (pending_.has_value() && (name == "value" || name == "is")) return;
    if (name == "val" || name == "valid" || name == "validation" || name == "eval" ||
        name == "evaluation" || name == "test") {
      held_out_ = true;
    }
    if (name == "train" || name == "training") held_out_ = false;
    pending_ = KeyHere(name);
    if (previous_ == "learning" && name == "rate") pending_ = MetricKey::kRate;
    if (previous_ == "grad" && name == "norm") pending_ = MetricKey::kGradNorm;
    previous_ = std::move(name);
  }

  std::optional<MetricKey> KeyHere(absl::string_view name) const {
    const std::optional<MetricKey> key = MetricKeyOf(name);
    return key == MetricKey::kLoss && held_out_ ? MetricKey::kEvalLoss : key;
  }

  // Reads "10", "10/200" and "10/", whose total is the next word.
  void SetCount(MetricKey key, absl::string_view text) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(text, absl::MaxSplits('/', 1));
    const std::optional<double> value = ParseNumber(parts.first);
    if (!value.has_value()) return;
    SetNumber(key, *value, sample_);
    const std::optional<double> total = ParseNumber(parts.second);
    expects_total_ = key == MetricKey::kStep && text.back() == '/';
    if (!total.has_value()) return;
    if (key == MetricKey::kStep) SetNumber(MetricKey::kTotal, *total, sample_);
    if (key == MetricKey::kEpoch) SetNumber(MetricKey::kTotalEpochs, *total, sample_);
  }

  MetricSample& sample_;
  std::optional<MetricKey> pending_;
  std::string previous_;
  bool held_out_ = false, expects_total_ = false;
};

}  // namespace

std::optional<MetricKey> MetricKeyOf(absl::string_view name) {
  if (name.size() < 2 || name.size() > 32) return std::nullopt;
  std::string key = absl::AsciiStrToLower(name);
  for (char& c : key) {
    if (c == '/' || c == '-' || c == '.') c = '_';
  }
  const auto found = KnownNames().find(key);
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

void ReadWords(absl::string_view line, MetricSample& sample) {
  WordReader reader(sample);
  size_t at = 0;
  while (at < line.size()) {
    while (at < line.size() && IsWordBreak(line[at])) ++at;
    size_t end = at;
    while (end < line.size() && !IsWordBreak(line[end])) ++end;
    if (end > at) reader.Add(line.substr(at, end - at));
    at = end;
  }
}

}  // namespace gpuctl
