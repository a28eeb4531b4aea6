#include "client/show/run_view.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/quantity.h"
#include "client/runs/output_loss.h"
#include "client/terminal/console.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr size_t kBytesPerUpdate = 1 << 20;
// Backlog in bytes above which a terminal gets only the newest output, and a notice: nobody reads
// that much.
constexpr int64_t kFarBehind = 8 << 20;
constexpr int64_t kKeptWhenFarBehind = 256 << 10;

}  // namespace

RunView::RunView(CommandContext& context, const RunRow& row, MirrorReader& mirror,
                 RunViewOptions options)
    : context_(context),
      row_(row),
      mirror_(mirror),
      options_(options),
      await_tail_(options.await_tail),
      drop_partial_line_(options.begin > 0),
      shown_(options.begin),
      terminal_(context) {
  if (options_.panel) terminal_.Start();
}

void RunView::AddTail(int64_t offset, absl::string_view data) {
  (void)Take(offset, data);  // only a filter has errors, and a panel has none
  await_tail_ = false;
}

void RunView::StopAwaitingTail() {
  if (!await_tail_) return;
  await_tail_ = false;
  const absl::StatusOr<Extent> extent = mirror_.OutputExtent();
  if (!extent.ok() || extent->size - shown_.next() <= kKeptWhenFarBehind) return;
  int64_t skipped = 0;
  (void)shown_.Take(extent->size - kKeptWhenFarBehind, "", skipped);
}

void RunView::AddNotice(absl::string_view text, Tone tone) {
  if (options_.panel) {
    log_.push_back(SaidLine(text));
  } else {
    context_.Say(text, tone);
  }
}

void RunView::TellLoss() {
  const OutputLoss loss = LossOf(mirror_.lifecycle());
  const int64_t lost = loss.bytes + loss.metric_lines;
  if (options_.show_output && lost > told_loss_) {
    AddNotice(DescribeLoss(loss), Tone::kWarning);
  }
  told_loss_ = lost;
}

absl::Status RunView::Take(int64_t offset, absl::string_view data) {
  int64_t skipped = 0;
  const bool first = shown_.next() == options_.begin;
  absl::string_view fresh = shown_.Take(offset, data, skipped);
  drop_partial_line_ = drop_partial_line_ || skipped > 0;
  if (skipped > 0 && !(first && options_.await_tail)) {
    AddNotice(absl::StrCat(FormatBytes(skipped), " of output not shown; gpuctl logs ", row_.name,
                           " has it"));
  }
  if (!options_.show_output) return absl::OkStatus();
  if (!options_.panel) {
    if (options_.filter == nullptr) {
      absl::StrAppend(&pending_, fresh);
      return absl::OkStatus();
    }
    const int64_t at = shown_.next() - static_cast<int64_t>(fresh.size());
    ASSIGN_OR_RETURN(const std::string chosen, options_.filter->Choose(at, fresh));
    pending_ += chosen;
    return absl::OkStatus();
  }
  if (drop_partial_line_ && !fresh.empty()) {
    const size_t newline = fresh.find('\n');
    if (newline != absl::string_view::npos) fresh.remove_prefix(newline + 1);
    drop_partial_line_ = false;
    (void)lines_.TakePartial();
  }
  lines_.Add(fresh, [this](absl::string_view line) {
    rows_.Add(line, [this](absl::string_view row) { Log(row); });
  });
  return absl::OkStatus();
}

absl::StatusOr<bool> RunView::CollectOutput() {
  if (await_tail_) return false;
  size_t taken = 0;
  while (taken < kBytesPerUpdate) {
    ASSIGN_OR_RETURN(const Extent extent, mirror_.OutputExtent());
    int64_t offset = shown_.next();
    if (options_.panel && extent.size - offset > kFarBehind)
      offset = extent.size - kKeptWhenFarBehind;
    ASSIGN_OR_RETURN(std::string bytes, mirror_.ReadOutput(offset));
    if (options_.filter != nullptr) {
      const int64_t room =
          std::max<int64_t>(0, options_.filter->Readable(mirror_.lifecycle()) - offset);
      if (static_cast<int64_t>(bytes.size()) > room) bytes.resize(static_cast<size_t>(room));
    }
    if (bytes.empty()) return false;
    taken += bytes.size();
    RETURN_IF_ERROR(Take(offset, bytes));
  }
  return true;
}

PanelState RunView::FillPanel(PanelState state) {
  const RunStatus status = DeriveStatus(row_, mirror_.lifecycle());
  state.run_name = row_.name;
  state.node_name = row_.target.name;
  state.phase = status.phase;
  if (status.over) state.hint.clear();
  if (status.started_ms > 0) {
    state.running_for = absl::Milliseconds(context_.NowMs() - status.started_ms);
  }
  state.progress = mirror_.progress();
  state.telemetry = mirror_.telemetry();
  for (const auto& number : mirror_.own().NewestMeasured(OwnMetrics::kMostNames)) {
    state.own.emplace_back(number.name, number.value);
  }
  state.partial_line = SanitizeLine(
      lines_.partial().empty() ? rows_.Last() : AfterCarriageReturns(lines_.partial()));
  return state;
}

absl::Status RunView::Flush(int wake_fd) {
  // The terminal may have become narrower since: then the panel takes more rows.
  if (unbegun_) terminal_.Renew(pending_);
  ASSIGN_OR_RETURN(const size_t written, options_.panel
                                             ? context_.DrawSafe(pending_, wake_fd)
                                             : context_.PrintJobBytes(pending_, wake_fd));
  if (written > 0) unbegun_ = false;
  pending_.erase(0, written);
  return absl::OkStatus();
}

absl::StatusOr<bool> RunView::Update(const PanelState& link_state, int wake_fd) {
  ASSIGN_OR_RETURN(const bool behind, mirror_.RefreshSome());
  TellLoss();
  if (options_.panel) RETURN_IF_ERROR(mirror_.RefreshOutputMetrics());
  // Write pending bytes first; nothing is read meanwhile, so memory stays limited.
  if (!pending_.empty()) {
    RETURN_IF_ERROR(Flush(wake_fd));
    if (!pending_.empty()) return true;
  }
  ASSIGN_OR_RETURN(const bool more, CollectOutput());
  if (options_.panel) {
    for (std::string& note : TakeNotes()) log_.push_back(std::move(note));
    const TerminalSize size = terminal_.size();
    const PanelStyle style{context_.terminal.colour, context_.terminal.utf8};
    pending_ += terminal_.Frame(std::exchange(log_, {}),
                                RenderPanel(FillPanel(link_state), size.columns, size.rows, style));
    unbegun_ = true;
  }
  RETURN_IF_ERROR(Flush(wake_fd));
  return more || behind || !pending_.empty();
}

// The frame that waits goes first: Restore erases the panel that it draws.
absl::Status RunView::Suspend() {
  RETURN_IF_ERROR(Flush(-1));
  terminal_.Restore();
  return absl::OkStatus();
}

absl::Status RunView::Finish() {
  if (options_.panel) {
    RETURN_IF_ERROR(Flush(-1));
    const auto log = [this](absl::string_view row) { Log(row); };
    if (!lines_.partial().empty()) rows_.Add(lines_.TakePartial(), log);
    rows_.Finish(log);
    pending_ += terminal_.Frame(std::exchange(log_, {}), {});
  } else if (options_.filter != nullptr) {
    ASSIGN_OR_RETURN(const std::string rest, options_.filter->End());
    pending_ += rest;
  }
  RETURN_IF_ERROR(Flush(-1));
  terminal_.Restore();
  return absl::OkStatus();
}

}  // namespace gpuctl
