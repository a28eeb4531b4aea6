#include "client/show/panel.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/base/gpu_memory.h"
#include "client/base/quantity.h"
#include "client/metrics/gpu_summary.h"
#include "client/terminal/line_assembler.h"
#include "client/terminal/safe_text.h"
#include "client/terminal/word_wrap.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kSilent = absl::Seconds(8);  // heartbeats come every 5 s
// Longer for another process's link: the mirror has no heartbeats, only the machine's telemetry.
constexpr absl::Duration kOtherSilent = absl::Seconds(20);

// A terminal that becomes narrower wraps wider lines before it tells anybody, so that a panel that
// is drawn at that moment erases too few rows.
constexpr int kTitleColumns = 79;
constexpr int kIndent = 2;  // of a line that goes on below

class Painter {
 public:
  explicit Painter(const PanelStyle& style) : style_(style) {}
  std::string Bold(const std::string& text) const { return Sgr("1", text); }
  std::string Dim(const std::string& text) const { return Sgr("2", text); }
  std::string Green(const std::string& text) const { return Sgr("32", text); }
  std::string Yellow(const std::string& text) const { return Sgr("33", text); }
  std::string Red(const std::string& text) const { return Sgr("31", text); }
  const char* dash() const { return style_.utf8 ? "─" : "-"; }
  const char* dot() const { return style_.utf8 ? " · " : " - "; }
  bool ascii() const { return !style_.utf8; }

  std::string Bar(double fraction, int width) const {
    const int full = std::clamp(static_cast<int>(fraction * width), 0, width);
    std::string done, rest;
    for (int i = 0; i < full; ++i) done += style_.utf8 ? "━" : "#";
    for (int i = full; i < width; ++i) rest += style_.utf8 ? "─" : ".";
    return absl::StrCat(Green(done), Dim(rest));
  }

  // Returns `line` in `width` columns, with a sign where something is missing.
  std::string Shortened(const std::string& line, int width) const {
    if (DisplayWidth(line) <= width) return line;
    return absl::StrCat(TruncateToWidth(line, width - 1), style_.utf8 ? "…" : ">");
  }

 private:
  std::string Sgr(const char* code, const std::string& text) const {
    if (!style_.colour || text.empty()) return text;
    return absl::StrCat("\x1b[", code, "m", text, "\x1b[0m");
  }
  PanelStyle style_;
};

std::string ColouredStatus(const Painter& paint, RunPhase phase) {
  const std::string word = WordOf(phase);
  switch (phase) {
    case RunPhase::kRunning:
    case RunPhase::kSucceeded:
      return paint.Green(word);
    case RunPhase::kFailed:
    case RunPhase::kLost:
    case RunPhase::kLimit:
      return paint.Red(word);
    default:
      return paint.Yellow(word);
  }
}

std::string TitleLine(const PanelState& state, int width, const Painter& paint) {
  std::string left = absl::StrCat(
      paint.dash(), paint.dash(), " ", paint.Bold(MakeSafe(state.run_name)), paint.dot(),
      ColouredStatus(paint, state.phase), " on ", MakeSafe(state.node_name));
  if (state.running_for.has_value()) {
    absl::StrAppend(&left, paint.dot(), HumanDuration(*state.running_for));
  }
  left += " ";
  std::string right = state.hint.empty() ? "" : absl::StrCat(" ", MakeSafe(state.hint), " ");
  if (DisplayWidth(left) + DisplayWidth(right) > width) right.clear();
  const int fill = std::min(width, kTitleColumns) - DisplayWidth(left) - DisplayWidth(right);
  std::string middle;
  for (int i = 0; i < fill; ++i) middle += paint.dash();
  return absl::StrCat(left, middle, paint.Dim(right));
}

std::string StepLine(const TrainingProgress& progress, int width, const Painter& paint) {
  if (progress.step() < 0) return "";
  std::string line = absl::StrCat("step ", progress.step());
  if (progress.total_steps() <= 0) {
    if (progress.epoch().has_value()) {
      absl::StrAppend(&line, "  epoch ", FormatNumber(*progress.epoch()));
      if (progress.total_epochs() > 0) absl::StrAppend(&line, "/", progress.total_epochs());
    }
    if (const std::optional<absl::Duration> eta = progress.EpochEta(); eta.has_value()) {
      absl::StrAppend(&line, "  epoch ends in ", HumanDuration(*eta));
    }
    return line;
  }
  const double fraction =
      static_cast<double>(progress.step()) / static_cast<double>(progress.total_steps());
  absl::StrAppend(&line, "/", progress.total_steps(), " ");
  std::string tail = absl::StrFormat(" %3.0f%%", 100 * std::clamp(fraction, 0.0, 1.0));
  if (const std::optional<absl::Duration> eta = progress.Eta(); eta.has_value()) {
    absl::StrAppend(&tail, "  ETA ", HumanDuration(*eta));
  }
  const int room = std::min(40, width - DisplayWidth(line) - DisplayWidth(tail));
  if (room >= 5) line += paint.Bar(fraction, room);
  return line + tail;
}

// Joins the first part and those after it for which `width` has room. A number that is cut looks
// like another number, so a part is shown whole or not at all.
std::string JoinFitting(const std::vector<std::string>& parts, absl::string_view separator,
                        int width) {
  std::string line;
  for (const std::string& part : parts) {
    const std::string longer = line.empty() ? part : absl::StrCat(line, separator, part);
    if (line.empty() || DisplayWidth(longer) <= width) line = longer;
  }
  return line;
}

// A loss that is not finite is in red.
std::string Value(double loss, const Painter& paint) {
  const std::string text = FormatNumber(loss);
  return std::isfinite(loss) ? text : paint.Red(text);
}

// Returns the newest two numbers of the job's own for which there may be room.
std::vector<std::string> OwnParts(const PanelState& state, const Painter& paint) {
  constexpr size_t kMost = 2;
  constexpr int kLongestName = 24;
  std::vector<std::string> parts;
  for (const auto& [name, value] : state.own) {
    if (parts.size() == kMost) break;
    const std::string safe = MakeSafe(name);
    if (DisplayWidth(safe) > kLongestName) continue;
    parts.push_back(absl::StrCat(safe, " ", Value(value, paint)));
  }
  return parts;
}

std::string LossLine(const PanelState& state, int width, const Painter& paint) {
  const TrainingProgress& progress = state.progress;
  std::vector<std::string> parts;
  if (progress.loss().has_value()) {
    std::string loss = absl::StrCat("loss ", paint.Bold(Value(*progress.loss(), paint)));
    const int room = std::clamp(width / 4, 8, 24);
    const std::string curve = Sparkline(progress.LossValues(), room, paint.ascii());
    if (progress.losses().size() > 1) absl::StrAppend(&loss, "  ", paint.Green(curve));
    parts.push_back(std::move(loss));
  }
  if (progress.eval_loss().has_value()) {
    parts.push_back(absl::StrCat("eval ", Value(*progress.eval_loss(), paint)));
  }
  if (progress.learning_rate().has_value()) {
    parts.push_back(absl::StrCat("lr ", FormatNumber(*progress.learning_rate())));
  }
  if (progress.tokens_per_s().has_value()) {
    parts.push_back(absl::StrFormat("%.0f tokens/s", *progress.tokens_per_s()));
  }
  for (std::string& own : OwnParts(state, paint)) parts.push_back(std::move(own));
  return JoinFitting(parts, "  ", width);
}

std::string MemoryText(const std::optional<double>& used, const std::optional<double>& total) {
  if (!used.has_value()) return "";
  if (!total.has_value()) return absl::StrFormat("%.1f GB", *used / 1e9);
  return absl::StrFormat("%.1f/%.1f GB", *used / 1e9, *total / 1e9);
}

// Counts the memory of a GPU in the GB in which it is sold.
std::string GpuMemoryText(const std::optional<double>& used, const std::optional<double>& total) {
  if (!used.has_value() || !total.has_value()) return MemoryText(used, total);
  const auto gb = static_cast<double>(GpuGigabyte(static_cast<int64_t>(*total)));
  return absl::StrFormat("%.1f/%.1f GB", *used / gb, *total / gb);
}

std::string GpuText(const TelemetrySample::Gpu& gpu, int width, const Painter& paint) {
  std::vector<std::string> parts;
  if (gpu.utilization_percent) parts.push_back(absl::StrFormat("%.0f%%", *gpu.utilization_percent));
  if (gpu.memory_used_bytes) {
    parts.push_back(GpuMemoryText(gpu.memory_used_bytes, gpu.memory_total_bytes));
  }
  if (gpu.power_w) parts.push_back(absl::StrFormat("%.0f W", *gpu.power_w));
  if (gpu.temperature_c) {
    parts.push_back(absl::StrFormat("%.0f%s", *gpu.temperature_c, paint.ascii() ? " C" : "°C"));
  }
  constexpr absl::string_view kName = "GPU ";
  return absl::StrCat(kName,
                      JoinFitting(parts, paint.dot(), width - static_cast<int>(kName.size())));
}

std::string TelemetryLine(const TelemetrySample& telemetry, int width, const Painter& paint) {
  std::vector<std::string> parts;
  std::string cpu;
  constexpr absl::string_view kSeparator = "   ";
  if (telemetry.cpu_percent) {
    cpu = absl::StrFormat("CPU %.0f%%", *telemetry.cpu_percent);
    const std::string memory =
        MemoryText(telemetry.memory_used_bytes, telemetry.memory_total_bytes);
    if (!memory.empty()) absl::StrAppend(&cpu, paint.dot(), memory);
  }
  if (telemetry.gpus.size() == 1) parts.push_back(GpuText(telemetry.gpus[0], width, paint));
  if (telemetry.gpus.size() > 1) {
    parts.push_back(JoinFitting(GpuSummary(telemetry.gpus, paint.ascii()), paint.dot(), width));
  }
  if (cpu.empty()) return JoinFitting(parts, kSeparator, width);
  // The processor comes first, and gives way to the GPUs where there is no room for all.
  std::vector<std::string> all = parts;
  all.insert(all.begin(), cpu);
  if (DisplayWidth(absl::StrJoin(all, kSeparator)) <= width) return absl::StrJoin(all, kSeparator);
  parts.push_back(cpu);
  return JoinFitting(parts, kSeparator, width);
}

}  // namespace

std::string SilenceText(const PanelState& state) {
  if (state.by_other) {
    const absl::Duration silence = state.silence.value_or(absl::ZeroDuration());
    return silence < kOtherSilent ? ""
                                  : absl::StrCat("nothing new for ", HumanDuration(silence),
                                                 "; another gpuctl here follows it");
  }
  // The first attempt to connect still runs, for a new or an earlier run.
  const bool first_attempt =
      !state.linked && state.link_error.empty() && !state.silence.has_value();
  if (!state.ever_linked || first_attempt) {
    return state.link_error.empty()
               ? "connecting …"
               : absl::StrCat("not connected: ", state.link_error, "; retrying");
  }
  if (state.linked && state.silence.value_or(absl::ZeroDuration()) < kSilent) return "";
  std::string text = state.silence.has_value()
                         ? absl::StrCat("last heard ", HumanDuration(*state.silence), " ago: ")
                         : "";
  absl::StrAppend(&text, "the job runs on without us; retrying");
  if (!state.linked && !state.link_error.empty())
    absl::StrAppend(&text, " (", state.link_error, ")");
  return text;
}

std::vector<std::string> RenderPanel(const PanelState& state, int columns, int rows,
                                     const PanelStyle& style) {
  if (rows < 4 || columns < 20) return {};
  const Painter paint(style);
  const int width = columns - 1;  // writing the last column makes some terminals wrap
  std::vector<std::string> lines;
  if (!state.partial_line.empty()) lines.push_back(state.partial_line);
  const std::string silence = SilenceText(state);
  lines.push_back(TitleLine(state, width, paint));
  std::vector<std::string> details = {StepLine(state.progress, width, paint),
                                      LossLine(state, width, paint)};
  if (state.telemetry.has_value()) details.push_back(TelemetryLine(*state.telemetry, width, paint));
  if (state.progress.checkpoint_step() >= 0) {
    details.push_back(absl::StrCat("newest checkpoint: step ", state.progress.checkpoint_step()));
  }
  // On a low terminal the log is more important; the silence line stays.
  const bool low = rows < 10;
  const auto in_front = [&](const std::string& text) {
    if (text.empty()) return;
    std::vector<std::string> parts = {MakeSafe(text)};
    if (!low) parts = WrapAtWords(parts[0], width, kIndent);
    details.insert(details.begin(), parts.begin(), parts.end());
  };
  in_front(state.queue);
  // The money stays on one line: parts for which there is no room are left out.
  const std::vector<std::string> money = absl::StrSplit(MakeSafe(state.money), ", ");
  details.insert(details.begin(), JoinFitting(money, ", ", width));
  size_t room = low ? 1 : rows < 20 ? 5 : 7;
  if (!silence.empty()) room -= low ? 1 : 0;
  for (std::string& detail : details) {
    if (detail.empty() || room == 0) continue;
    lines.push_back(std::move(detail));
    --room;
  }
  if (!silence.empty()) {
    // The reason stands at the end of the line, so that nothing of it may be cut off.
    constexpr size_t kMostRows = 3;
    std::vector<std::string> parts = {MakeSafe(silence)};
    if (!low) parts = WrapAtWords(parts[0], width, kIndent);
    for (size_t i = 0; i < std::min(parts.size(), kMostRows); ++i) {
      lines.push_back(paint.Yellow(parts[i]));
    }
  }
  for (std::string& line : lines) line = paint.Shortened(line, width);
  return lines;
}

}  // namespace gpuctl
