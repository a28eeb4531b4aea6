#include "common/metrics/output_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/rank_mark.h"
#include "common/metrics/metric_words.h"

namespace gpuctl {
namespace {

constexpr char kEscape = '\x1b';
constexpr int64_t kOuterMovesThatCount = 2;

// True when a line may have numbers. Most lines of a long output have none, and this is quick.
bool MayHaveNumbers(absl::string_view piece) {
  const auto ends = [piece](size_t at, absl::string_view sign) {
    return at + 1 >= sign.size() && piece.substr(at + 1 - sign.size(), sign.size()) == sign;
  };
  for (size_t at = 0; at < piece.size(); ++at) {
    bool found = false;
    switch (piece[at]) {
      case 's':
        found = ends(at, "oss");
        break;
      case 'S':
        found = ends(at, "OSS");
        break;
      case 'h':
        found = ends(at, "poch");
        break;
      case 'p':
        found = ends(at, "/step");
        break;
      case 'A':
        found = ends(at, "ETA");
        break;
      case '|':
        found = ends(at, "%|");
        break;
      case '[':
        found = ends(at, "% [") || ends(at, "it [");
        break;
      default:
        break;
    }
    if (found) return true;
  }
  const absl::string_view line = absl::StripLeadingAsciiWhitespace(piece);
  return !line.empty() && (line[0] == '{' || line[0] == '*');
}

// Returns the text without escape sequences and backspaces, into `room` where it has some.
absl::string_view WithoutEscapes(absl::string_view text, std::string& room) {
  if (!absl::StrContains(text, kEscape) && !absl::StrContains(text, '\b')) return text;
  room.clear();
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\b') continue;
    if (text[at] != kEscape) {
      room.push_back(text[at]);
      continue;
    }
    if (++at >= text.size() || text[at] != '[') continue;
    while (++at < text.size() && (text[at] < '@' || text[at] > '~')) {
    }
  }
  return room;
}

bool IsBlank(absl::string_view text) {
  return text.find_first_not_of(' ') == absl::string_view::npos;
}

std::vector<absl::string_view> WordsOf(absl::string_view text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \t"), absl::SkipEmpty());
}

// True when a line has what no head of a table has: numbers, or the signs of another form.
bool HasMoreThanNames(absl::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || c == ':' || c == '=' || c == ',' || c == ';' || c == '{' ||
           c == '}';
  });
}

bool IsMeanLoss(absl::string_view line) {
  return absl::StrContains(line, "vg loss") || absl::StrContains(line, "verage loss") ||
         absl::StrContains(line, "ean loss");
}

bool IsLossName(absl::string_view word) {
  return absl::EndsWith(absl::AsciiStrToLower(word), "loss");
}

}  // namespace

void OutputMetrics::Read(absl::string_view bytes, const Sink& sink) {
  while (!bytes.empty()) {
    size_t end = bytes.size();
    if (const void* newline = std::memchr(bytes.data(), '\n', end); newline != nullptr) {
      end = static_cast<size_t>(static_cast<const char*>(newline) - bytes.data());
    }
    if (const void* back = std::memchr(bytes.data(), '\r', end); back != nullptr) {
      end = static_cast<size_t>(static_cast<const char*>(back) - bytes.data());
    }
    const bool torn = end == bytes.size();
    const absl::string_view piece = bytes.substr(0, end);
    bytes.remove_prefix(torn ? end : end + 1);
    if (skipping_ || partial_.size() + piece.size() > kMaxMetricLineBytes) {
      partial_.clear();
      skipping_ = torn;
    } else if (torn) {
      partial_.append(piece.data(), piece.size());
    } else if (partial_.empty()) {
      OnPiece(piece, sink);
    } else {
      partial_.append(piece.data(), piece.size());
      OnPiece(std::exchange(partial_, std::string()), sink);
    }
  }
}

void OutputMetrics::Look(const Sink& sink) const {
  OutputMetrics copy = *this;
  copy.Flush(sink);
  std::string room;
  const absl::string_view text = WithoutEscapes(partial_, room);
  const std::optional<PrintedBar> bar = ParseBar(text);
  const bool nested = absl::StrContains(partial_, "\x1b[A");
  if (bar.has_value() && copy.IsRunning(*bar, copy.FactsOf(*bar).key, nested)) {
    copy.OnBar(*bar, nested, sink);
  }
}

void OutputMetrics::BeginAttempt(int attempt, const Sink& sink, bool ranks) {
  if (attempt <= attempt_) {
    ranks_ = ranks;
    return;
  }
  if (!partial_.empty()) OnPiece(std::exchange(partial_, std::string()), sink);
  Flush(sink);
  *this = OutputMetrics();
  attempt_ = attempt;
  ranks_ = ranks;
}

std::optional<MetricSample> OutputMetrics::Add(absl::string_view line) {
  std::optional<MetricSample> merged;
  const auto merge = [&merged](const MetricSample& sample) {
    if (sample.loss.has_value() || sample.eval_loss.has_value() || !merged.has_value()) {
      merged = sample;
    }
  };
  Read(line, merge);
  Read("\n", merge);
  Flush(merge);
  return merged;
}

void OutputMetrics::Emit(MetricSample sample, const Sink& sink) const {
  sample.attempt = static_cast<int>(attempt_);
  if (!sample.empty()) sink(sample);
}

void OutputMetrics::Flush(const Sink& sink) {
  if (held_.has_value()) Emit(*std::exchange(held_, std::nullopt), sink);
}

void OutputMetrics::OnPiece(absl::string_view piece, const Sink& sink) {
  if (const std::optional<RankMark> mark = ranks_ ? ParseRankMark(piece) : std::nullopt) {
    if (mark->rank != 0) return;
    piece.remove_prefix(mark->size);
  }
  if (piece.empty()) return;
  if (!MayHaveNumbers(piece) && columns_.empty() && !in_summary_) {
    cleared_ = piece.size() > 8 && IsBlank(piece);
    return;
  }
  const bool nested = absl::StrContains(piece, "\x1b[A");
  std::string room;
  absl::string_view text = WithoutEscapes(piece, room);
  if (IsBlank(text)) {
    cleared_ = cleared_ || text.size() > 8;
    return;
  }
  while (const std::optional<PrintedBar> bar = ParseBar(text)) {
    OnBar(*bar, nested, sink);
    text.remove_prefix(bar->end);
    cleared_ = false;
  }
  if (!IsBlank(text)) OnText(text, sink);
  cleared_ = false;
}

// Takes lines that say what the next ones are. Returns true when the line was such a one.
bool OutputMetrics::OnFrame(absl::string_view text) {
  if (absl::StartsWith(text, "*****")) {
    in_summary_ = absl::StrContains(text, "metrics");
    return true;
  }
  if (in_summary_) {
    in_summary_ = absl::StartsWith(text, " ") && absl::StrContains(text, " = ");
    if (in_summary_) return true;
  }
  if (absl::StrContains(text, "train_runtime")) {
    over_ = true;
    return true;
  }
  if (!absl::StrContains(text, "Epoch")) return false;
  const std::vector<absl::string_view> words = WordsOf(text);
  if (words.size() != 2 || words[0] != "Epoch") return false;
  const std::optional<LabelEpoch> epoch = EpochOfLabel(text);
  if (!epoch.has_value() || epoch->total < 0) return false;
  header_epoch_ = epoch->epoch;
  header_epochs_ = epoch->total;
  keras_done_ = false;
  return true;
}

// Reads the head and the rows of a table, such as fastai's.
bool OutputMetrics::OnTable(absl::string_view text, const Sink& sink) {
  const bool may_be_head = !HasMoreThanNames(text);
  if (!may_be_head && columns_.empty()) return false;
  const std::vector<absl::string_view> words = WordsOf(text);
  if (words.size() < 3) return false;
  if (may_be_head) {
    if (!absl::EqualsIgnoreCase(words[0], "epoch")) return false;
    for (const absl::string_view word : words) {
      if (!IsLossName(word)) continue;
      columns_.clear();
      for (const absl::string_view column : words) columns_.emplace_back(column);
      return true;
    }
    return false;
  }
  MetricSample sample;
  if (!ReadColumns(text, sample)) return false;
  OnSample(sample, /*in_words=*/false, sink);
  return true;
}

// Reads a row below the newest table's head. A loss that comes in parts is their sum.
bool OutputMetrics::ReadColumns(absl::string_view text, MetricSample& sample) const {
  const std::vector<absl::string_view> words = WordsOf(text);
  if (columns_.empty() || words.size() != columns_.size()) return false;
  double sum = 0;
  bool in_parts = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(words[i], absl::MaxSplits('/', 1));
    const std::optional<double> value = ParseNumber(parts.first);
    if (i == 0 && !value.has_value()) return false;
    if (!value.has_value()) continue;
    if (const std::optional<MetricKey> key = MetricKeyOf(columns_[i]); key.has_value()) {
      SetNumber(*key, *value, sample);
      const std::optional<double> total = ParseNumber(parts.second);
      if (key == MetricKey::kEpoch && total.has_value()) {
        SetNumber(MetricKey::kTotalEpochs, *total, sample);
      }
    } else if (IsLossName(columns_[i])) {
      sum += *value;
      in_parts = true;
    }
  }
  if (in_parts && !sample.loss.has_value()) sample.loss = sum;
  return sample.loss.has_value() || sample.eval_loss.has_value();
}

void OutputMetrics::OnText(absl::string_view text, const Sink& sink) {
  Flush(sink);
  if (OnFrame(text) || OnTable(text, sink)) return;
  std::optional<MetricSample> sample = ParseMetricLine(text);
  if (!sample.has_value()) return;
  const bool in_words = !absl::EndsWith(absl::StripTrailingAsciiWhitespace(text), "}");
  if (in_words && !sample->step.has_value() && (TextCounts() || has_loss_) && IsMeanLoss(text)) {
    // Beside the losses of steps it tells nothing new, or is one of test data.
    if (absl::StrContains(text, "ccuracy") && !sample->eval_loss.has_value()) {
      sample->eval_loss = sample->loss;
    }
    sample->loss.reset();
  }
  OnSample(*sample, in_words, sink);
}

// Finds the whole training's step for an evaluation that tells a step.
void OutputMetrics::PlaceEvaluation(MetricSample& sample) const {
  const bool has_total = sample.total_steps.has_value();
  sample.total_steps.reset();
  if (!sample.step_is_evaluations) {
    sample.step = (TextCounts() ? text_epochs_ : epochs_).Whole(*sample.step);
  } else if (whole_step_ >= 0) {
    sample.step = whole_step_;
  } else if (has_total) {
    sample.step.reset();
  }
}

// Takes a line that has a step and a loss.
void OutputMetrics::OnOwnStep(MetricSample sample, const Sink& sink) {
  const bool both = sample.total_epochs.has_value() && sample.total_steps.has_value();
  sample.attempt = static_cast<int>(attempt_);
  text_epochs_.Unfold(both ? StepScope::kMaybeEpoch : StepScope::kUnknown, sample);
  text_moves_ = text_moves_ || (text_step_ >= 0 && text_step_ != *sample.step);
  text_step_ = *sample.step;
  if (TextCounts()) {
    whole_step_ = *sample.step;
    whole_total_ = sample.total_steps.value_or(-1);
  } else {
    sample.total_steps.reset();
    if (has_loss_) {
      sample.step = whole_step_;
      sample.loss.reset();
    }
  }
  Emit(sample, sink);
}

void OutputMetrics::OnSample(MetricSample sample, bool in_words, const Sink& sink) {
  if (sample.checkpoint) return Emit(sample, sink);
  if (sample.loss.has_value() && sample.learning_rate.has_value()) over_ = false;
  if (sample.step.has_value() && !sample.loss.has_value()) {
    PlaceEvaluation(sample);
    return Emit(sample, sink);
  }
  if (sample.step.has_value()) return OnOwnStep(sample, sink);
  if (sample.loss.has_value() && !sample.eval_loss.has_value() && other_.known() &&
      !other_.finished()) {
    // The loss belongs to this bar: it ran last.
    running_ = std::exchange(other_, Bar());
    nested_ = has_loss_ = false;
    whole_step_ = running_.step;
    whole_total_ = running_.total;
    epochs_ = EpochSteps();
  }
  // The loss of a line about a whole epoch is a mean when there are losses of steps.
  if (in_words && sample.epoch.has_value() && (TextCounts() || has_loss_)) sample.loss.reset();
  attested_ = attested_ || sample.loss.has_value();
  if (whole_step_ >= 0) {
    sample.step = whole_step_;
    if (whole_total_ > 0) sample.total_steps = whole_total_;
  } else if (sample.epoch.has_value() && *sample.epoch == std::floor(*sample.epoch) &&
             *sample.epoch >= 0 && *sample.epoch < 1e9) {
    // A script that tells epochs alone: they are its steps.
    sample.step = static_cast<int64_t>(*sample.epoch);
    sample.total_steps = sample.total_epochs;
  }
  // tqdm draws its bars again behind the line; only then they are as new as the line.
  if (cleared_ && running_.known() && !TextCounts()) {
    held_ = sample;
  } else {
    Emit(sample, sink);
  }
}

const OutputMetrics::LabelFacts& OutputMetrics::FactsOf(const PrintedBar& bar) {
  LabelFacts& facts = facts_;
  if (!facts.known || facts.label != bar.label || facts.unit != bar.unit) {
    facts = {true, std::string(bar.label), std::string(bar.unit), KindOfBar(bar),
             LabelKey(bar.label)};
  }
  return facts;
}

void OutputMetrics::OnHeldOutBar(const PrintedBar& bar, const Sink& sink) {
  if (bar.total <= 0 || bar.step < bar.total) return;
  const MetricSample numbers = SampleOfBar(bar);
  MetricSample sample;
  sample.eval_loss = numbers.eval_loss.has_value() ? numbers.eval_loss : numbers.loss;
  if (!sample.eval_loss.has_value() || sample.eval_loss == bar_eval_) return;
  bar_eval_ = sample.eval_loss;
  if (whole_step_ >= 0) sample.step = whole_step_;
  Emit(sample, sink);
}

// True when Keras trains with this bar: evaluations and predictions have no "Epoch 3/10" above.
bool OutputMetrics::AcceptsKeras(const PrintedBar& bar) {
  if (header_epoch_ < 0) return false;
  const bool finished = bar.step >= bar.total;
  if (keras_done_ && (!finished || bar.total != running_.total)) return false;
  keras_done_ = finished;
  return true;
}

bool OutputMetrics::IsRunning(const PrintedBar& bar, absl::string_view label, bool nested) const {
  // When a nested bar is over, tqdm draws it a last time as one that is not nested.
  return running_.known() && running_.total == bar.total && running_.label == label &&
         (nested == nested_ || nested_);
}

// True when the training bar is this one from now on.
bool OutputMetrics::Replaces(const PrintedBar& bar, const LabelFacts& facts, bool nested,
                             bool has_loss) {
  const std::string& label = facts.key;
  if (!running_.known()) return true;
  if (over_) return facts.kind == BarKind::kTraining && !nested;
  if (nested_ && !nested) {
    outer_moves_ = outer_.label == label && bar.step > outer_.step ? outer_moves_ + 1 : 0;
    outer_ = {label, bar.step, bar.total};
    // An outer bar that moves by itself is no bar of epochs: the nested one was an evaluation.
    const bool back = has_loss || outer_moves_ >= kOuterMovesThatCount;
    if (back) outer_ = Bar();
    return back;
  }
  if (nested && !nested_) {
    const bool epochs_outside = running_.step == 0 && !attested_;
    const bool inner = epochs_outside || (has_loss && !has_loss_);
    if (inner) outer_ = running_;
    return inner;
  }
  if (has_loss && !has_loss_) return true;
  if (has_loss_) return has_loss && running_.finished();
  if (!attested_) return true;
  if (!nested) other_ = {label, bar.step, bar.total};
  return false;
}

void OutputMetrics::SetEpoch(const PrintedBar& bar, MetricSample& sample, StepScope& scope) const {
  LabelEpoch epoch;
  if (bar.keras) {
    epoch = {header_epoch_, header_epochs_};
  } else if (const std::optional<LabelEpoch> label = EpochOfLabel(bar.label); label.has_value()) {
    epoch = *label;
  } else if (nested_ && outer_.known()) {
    epoch = {outer_.step, outer_.total};
  } else {
    return;
  }
  scope = StepScope::kEpoch;
  sample.epoch = static_cast<double>(epoch.epoch);
  if (epoch.total > 0) sample.total_epochs = epoch.total;
}

// Learns from a bar that follows another one. When a shorter bar of the same label has run between
// two runs of a training bar, it is an evaluation.
void OutputMetrics::Compare(const Bar& before, const Bar& now) {
  const bool alike = before.label == now.label && before.total > 0 && now.total > 0;
  if (alike && replaced_.label == now.label && replaced_.total == now.total &&
      before.total < now.total) {
    aside_ = before;
    epochs_ = replaced_epochs_;
    replaced_ = Bar();
  } else if (alike && now.total < before.total) {
    replaced_ = before;
    replaced_epochs_ = epochs_;
  } else {
    replaced_ = Bar();
  }
}

void OutputMetrics::OnBar(const PrintedBar& bar, bool nested, const Sink& sink) {
  const LabelFacts& facts = FactsOf(bar);
  if (facts.kind == BarKind::kOther) return;
  if (facts.kind == BarKind::kHeldOut) return OnHeldOutBar(bar, sink);
  if (bar.keras && !AcceptsKeras(bar)) return;
  MetricSample sample = SampleOfBar(bar);
  MetricSample row;
  if (ReadColumns(bar.label, row)) sample.loss = row.loss;
  const std::string& label = facts.key;
  if (aside_.known() && aside_.total == bar.total && aside_.label == label && !nested) {
    return OnHeldOutBar(bar, sink);
  }
  if (!IsRunning(bar, label, nested)) {
    const bool was_attested = attested_;
    const bool had_loss = has_loss_;
    const Bar before = running_;
    if (!Replaces(bar, facts, nested, sample.loss.has_value())) return;
    if (had_loss && !nested) Compare(before, Bar{label, bar.step, bar.total});
    if (!running_.known() && !text_moves_) {
      // What a line told before the first bar was about the start.
      text_step_ = -1;
      text_epochs_ = EpochSteps();
    }
    nested_ = nested;
    attested_ = has_loss_ = false;
    if (!was_attested) epochs_ = EpochSteps();
  }
  running_ = {label, bar.step, bar.total};
  other_ = Bar();
  outer_moves_ = 0;
  if (sample.loss.has_value()) attested_ = has_loss_ = true;
  if (sample.eval_loss == bar_eval_) sample.eval_loss.reset();
  if (sample.eval_loss.has_value()) bar_eval_ = sample.eval_loss;
  if (TextCounts()) {
    // The steps of the script's own lines are better than the bar's count.
    sample.step.reset();
    sample.total_steps.reset();
    sample.loss.reset();
    if (sample.eval_loss.has_value()) sample.step = whole_step_;
  } else {
    StepScope scope = StepScope::kUnknown;
    SetEpoch(bar, sample, scope);
    sample.attempt = static_cast<int>(attempt_);
    epochs_.Unfold(scope, sample);
    whole_step_ = *sample.step;
    whole_total_ = sample.total_steps.value_or(-1);
    if (held_.has_value()) held_->step = whole_step_;
  }
  Flush(sink);
  Emit(sample, sink);
}

}  // namespace gpuctl
