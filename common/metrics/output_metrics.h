// Reads training numbers from a job's whole output, as it comes: knows the training bar among
// others, joins numbers that scripts spread over lines, counts steps over epochs. Pure.
#ifndef GPUCTL_COMMON_METRICS_OUTPUT_METRICS_H_
#define GPUCTL_COMMON_METRICS_OUTPUT_METRICS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/metrics/epoch_steps.h"
#include "common/metrics/metric_lines.h"
#include "common/metrics/printed_bar.h"

namespace gpuctl {

class OutputMetrics {
 public:
  using Sink = std::function<void(const MetricSample&)>;

  // Takes the output's bytes in order and passes on its numbers. A line may be torn at the end of
  // `bytes`; its rest comes with the next call.
  void Read(absl::string_view bytes, const Sink& sink);
  // Passes on the numbers that wait for a next line, and those of the training bar when it is drawn
  // in the line that has no end yet. The reading goes on as if this had not been called.
  void Look(const Sink& sink) const;
  // Tells that the next bytes are those of this attempt. Earlier attempts do not come again.
  // `ranks`: its lines have the marks of several processes (common/base/rank_mark.h); only rank 0's
  // numbers count.
  void BeginAttempt(int attempt, const Sink& sink, bool ranks = false);
  // Sets that alone.
  void SetRanks(bool ranks) { ranks_ = ranks; }
  // Returns the number of bytes at the end of what was read that have to be read again by an object
  // with a copy of this one's fields.
  int64_t unread_bytes() const { return static_cast<int64_t>(partial_.size()); }

  // Takes one line of output and returns its numbers; those of the last piece with a loss when '\r'
  // separates several.
  std::optional<MetricSample> Add(absl::string_view line);

  // Passes each field with its name to `visit`, to store or to load it.
  template <typename Visitor>
  void Visit(Visitor&& visit);

 private:
  // One of several bars that a script draws.
  struct Bar {
    std::string label;
    int64_t step = -1, total = -1;
    bool known() const { return step >= 0; }
    bool finished() const { return total > 0 && step >= total; }
  };

  // What the label and the unit of a bar tell. A bar is drawn a million times, its label changes
  // seldom.
  struct LabelFacts {
    bool known = false;
    std::string label, unit;
    BarKind kind = BarKind::kUnknown;
    std::string key;  // see LabelKey
  };

  const LabelFacts& FactsOf(const PrintedBar& bar);
  void OnPiece(absl::string_view piece, const Sink& sink);
  void OnText(absl::string_view text, const Sink& sink);
  bool OnFrame(absl::string_view text);
  bool OnTable(absl::string_view text, const Sink& sink);
  // True when the steps of lines are the training's. One line alone may tell of the start, so a bar
  // is better than it.
  bool TextCounts() const { return text_moves_ || (text_step_ >= 0 && !running_.known()); }
  void PlaceEvaluation(MetricSample& sample) const;
  void OnOwnStep(MetricSample sample, const Sink& sink);
  void OnSample(MetricSample sample, bool in_words, const Sink& sink);
  void Compare(const Bar& before, const Bar& now);
  void OnBar(const PrintedBar& bar, bool nested, const Sink& sink);
  void OnHeldOutBar(const PrintedBar& bar, const Sink& sink);
  bool AcceptsKeras(const PrintedBar& bar);
  bool IsRunning(const PrintedBar& bar, absl::string_view label, bool nested) const;
  bool Replaces(const PrintedBar& bar, const LabelFacts& facts, bool nested, bool has_loss);
  void SetEpoch(const PrintedBar& bar, MetricSample& sample, StepScope& scope) const;
  bool ReadColumns(absl::string_view text, MetricSample& sample) const;
  void Emit(MetricSample sample, const Sink& sink) const;
  void Flush(const Sink& sink);

  int64_t attempt_ = 0;
  std::string partial_;    // the piece without an end
  bool skipping_ = false;  // in a line that is too long
  bool cleared_ = false;   // the last piece was blanks: tqdm makes room for a line
  std::optional<MetricSample> held_;

  Bar running_;  // the training bar
  bool nested_ = false, has_loss_ = false;
  bool attested_ = false;  // a loss was seen while it ran
  Bar outer_;              // the bar around it: epochs
  int64_t outer_moves_ = 0;
  Bar other_;     // a bar that may become the training bar
  Bar replaced_;  // the training bar before a shorter one
  EpochSteps replaced_epochs_;
  Bar aside_;  // a bar of evaluations that has no label to tell it
  int64_t whole_step_ = -1, whole_total_ = -1;
  std::optional<double> bar_eval_;  // bars repeat the last one

  // The lines that have a step and a loss of their own.
  EpochSteps text_epochs_;
  int64_t text_step_ = -1;   // the newest one's
  bool text_moves_ = false;  // two of them had different steps
  bool over_ = false;        // the Trainer has printed its summary
  bool in_summary_ = false;
  int64_t header_epoch_ = -1, header_epochs_ = -1;  // of Keras' "Epoch 3/10"
  bool keras_done_ = false;
  std::vector<std::string> columns_;  // of the newest table's head
  EpochSteps epochs_;
  LabelFacts facts_;    // of the newest bar; not stored
  bool ranks_ = false;  // not stored: the caller tells it again
};

template <typename Visitor>
void OutputMetrics::Visit(Visitor&& visit) {
  const auto visit_bar = [&visit](const std::string& name, Bar& bar) {
    visit(name + ".label", bar.label);
    visit(name + ".step", bar.step);
    visit(name + ".total", bar.total);
  };
  visit("attempt", attempt_);
  visit("skipping", skipping_);
  visit("cleared", cleared_);
  visit_bar("running", running_);
  visit("nested", nested_);
  visit("has_loss", has_loss_);
  visit("attested", attested_);
  visit_bar("outer", outer_);
  visit("outer_moves", outer_moves_);
  visit_bar("other", other_);
  visit_bar("replaced", replaced_);
  visit_bar("aside", aside_);
  visit("whole_step", whole_step_);
  visit("whole_total", whole_total_);
  visit("bar_eval", bar_eval_);
  visit("text_step", text_step_);
  visit("text_moves", text_moves_);
  visit("over", over_);
  visit("in_summary", in_summary_);
  visit("header_epoch", header_epoch_);
  visit("header_epochs", header_epochs_);
  visit("keras_done", keras_done_);
  visit("columns", columns_);
  bool holds = held_.has_value();
  visit("holds", holds);
  if (!holds) {
    held_.reset();
  } else {
    if (!held_.has_value()) held_.emplace();
    int64_t step = held_->step.value_or(-1), total = held_->total_steps.value_or(-1);
    visit("held.step", step);
    visit("held.total", total);
    if (step >= 0) held_->step = step;
    if (total >= 0) held_->total_steps = total;
    visit("held.epoch", held_->epoch);
    visit("held.loss", held_->loss);
    visit("held.eval_loss", held_->eval_loss);
    visit("held.learning_rate", held_->learning_rate);
    visit("held.grad_norm", held_->grad_norm);
    visit("held.tokens_per_s", held_->tokens_per_s);
  }
  const auto visit_epochs = [&visit](const std::string& name, EpochSteps& epochs) {
    epochs.Visit([&](const std::string& field, auto& value) { visit(name + "." + field, value); });
  };
  visit_epochs("epochs", epochs_);
  visit_epochs("text_epochs", text_epochs_);
  visit_epochs("replaced_epochs", replaced_epochs_);
}

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_METRICS_OUTPUT_METRICS_H_
