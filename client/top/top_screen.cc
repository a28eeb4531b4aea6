#include "client/top/top_screen.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/base/gpu_memory.h"
#include "client/base/quantity.h"
#include "client/metrics/gpu_summary.h"
#include "client/metrics/plot.h"
#include "client/terminal/line_assembler.h"
#include "client/terminal/safe_text.h"
#include "client/terminal/table.h"
#include "client/terminal/word_wrap.h"

namespace gpuctl {
namespace {

constexpr int kCurveWidth = 16;
constexpr int kOwnWidth = 24;
constexpr size_t kPlottedRuns = 6;  // more curves cannot be told apart
constexpr int kLeastPlotRows = 8;
constexpr int kMostPlotRows = 20;
constexpr size_t kNotices = 3;

bool HasEnded(RunPhase phase) {
  switch (phase) {
    case RunPhase::kSucceeded:
    case RunPhase::kFailed:
    case RunPhase::kStopped:
    case RunPhase::kLimit:
    case RunPhase::kLost:
      return true;
    default:
      return false;
  }
}

Cell StatusCell(RunPhase phase) {
  Cell cell = WordOf(phase);
  cell.red = phase == RunPhase::kFailed || phase == RunPhase::kLost || phase == RunPhase::kLimit;
  return cell;
}

std::string StepText(const TrainingProgress& progress) {
  if (progress.step() < 0) return "-";
  if (progress.total_steps() <= 0) return absl::StrCat(progress.step());
  return absl::StrFormat("%d/%d", progress.step(), progress.total_steps());
}

// One that waits for the others is told by the range; what GPUs have of memory, by the fullest one.
std::string GpuText(const TelemetrySample& telemetry) {
  const std::string text = UtilizationText(telemetry.gpus, "-");
  if (text.empty()) return "-";
  return telemetry.gpus.size() == 1 ? text : absl::StrCat(telemetry.gpus.size(), "x ", text);
}

std::string GpuMemoryText(const TelemetrySample& telemetry) {
  double most = -1;
  std::string text = "-";
  for (const TelemetrySample::Gpu& gpu : telemetry.gpus) {
    if (!gpu.memory_used_bytes.has_value() || *gpu.memory_used_bytes <= most) continue;
    most = *gpu.memory_used_bytes;
    const bool whole = gpu.memory_total_bytes.has_value();
    const auto gb = static_cast<double>(
        GpuGigabyte(static_cast<int64_t>(whole ? *gpu.memory_total_bytes : most)));
    text = whole ? absl::StrFormat("%.1f/%.0f GB", most / gb, *gpu.memory_total_bytes / gb)
                 : absl::StrFormat("%.1f GB", most / gb);
  }
  return text;
}

std::string CpuText(const TelemetrySample& telemetry) {
  return telemetry.cpu_percent.has_value() ? absl::StrFormat("%.0f%%", *telemetry.cpu_percent)
                                           : "-";
}

TableRow RowOf(const TopRun& run, bool utf8) {
  static const TrainingProgress kNothing;
  const TrainingProgress& progress = run.progress == nullptr ? kNothing : *run.progress;
  const bool over = HasEnded(run.phase);
  const std::optional<absl::Duration> left = over ? std::nullopt : progress.Eta();
  const std::optional<double> speed = over ? std::nullopt : progress.tokens_per_s();
  Cell loss = progress.loss().has_value() ? FormatNumber(*progress.loss()) : "-";
  loss.red = progress.loss().has_value() && !std::isfinite(*progress.loss());
  return {run.name,
          StatusCell(run.phase),
          StepText(progress),
          left.has_value() ? HumanDuration(*left) : "-",
          std::move(loss),
          Sparkline(progress.LossValues(), kCurveWidth, !utf8),
          run.own.empty() ? "-" : std::string(TruncateToWidth(MakeSafe(run.own), kOwnWidth)),
          speed.has_value() ? absl::StrFormat("%.0f", *speed) : "-",
          run.telemetry.has_value() ? GpuText(*run.telemetry) : "-",
          run.telemetry.has_value() ? GpuMemoryText(*run.telemetry) : "-",
          run.telemetry.has_value() ? CpuText(*run.telemetry) : "-",
          run.running_for.has_value() ? HumanDuration(*run.running_for) : "-",
          run.spent.empty() ? "-" : run.spent,
          run.remark.empty() ? run.node : absl::StrCat(run.node, " (", run.remark, ")")};
}

// The table of the first `count` runs, without columns that have nothing to tell of any run.
std::vector<std::string> TableLines(const std::vector<TopRun>& runs, size_t count, int width,
                                    bool colour, bool utf8) {
  std::vector<TableRow> table = {{"NAME", "STATUS", "STEP", "LEFT", "LOSS", "CURVE", "OWN", "TOK/S",
                                  "GPU", "GPU MEM", "CPU", "FOR", "SPENT", "ON"}};
  for (size_t i = 0; i < count; ++i) table.push_back(RowOf(runs[i], utf8));
  for (size_t column = table[0].size(); column-- > 0;) {
    const bool empty = std::all_of(table.begin() + 1, table.end(), [column](const TableRow& row) {
      return row[column].text.empty() || row[column].text == "-";
    });
    if (!empty) continue;
    for (TableRow& row : table) row.erase(row.begin() + static_cast<int64_t>(column));
  }
  const std::string text = FormatTableWithin(
      std::move(table), width,
      {"OWN", "CPU", "GPU MEM", "CURVE", "TOK/S", "FOR", "ON", "SPENT", "LEFT", "GPU", "LOSS"},
      colour);
  std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  return lines;
}

std::vector<std::string> PlotLines(const std::vector<TopRun>& runs, int width, int rows,
                                   bool utf8) {
  std::vector<PlotSeries> series;
  for (const TopRun& run : runs) {
    if (series.size() == kPlottedRuns) break;
    if (run.progress == nullptr || run.progress->losses().size() < 2) continue;
    series.push_back({MakeSafe(run.name), run.progress->losses()});
  }
  // Dots of several curves cannot be told apart, digits can.
  const bool ascii = !utf8 || series.size() > 1;
  return Plot(series, "steps", width, std::min(rows, kMostPlotRows), ascii);
}

// What the keys do and what the columns are, those first that do not explain themselves.
constexpr absl::string_view kHelp[] = {
    "q, Ctrl-C  leave; the runs go on",
    "?, h       show this, and the runs again",
    "Ctrl-Z     stop gpuctl top; fg goes on with it",
    "",
    "LEFT       until the last step, at the present pace",
    "OWN        the newest number that only the job knows",
    "TOK/S      tokens per second",
    "GPU        utilization; of several: how many, and the least to the most",
    "GPU MEM    of the fullest one",
    "SPENT      by the run, of its machine's bill",
    "",
    "Below: the losses of the first six runs.",
    "gpuctl attach RUN shows one with its output, gpuctl stop RUN ends its job,",
    "gpuctl down RUN its machine's bill, too.",
};

std::vector<std::string> HelpLines(int width) {
  std::vector<std::string> lines;
  for (const absl::string_view line : kHelp) {
    for (const std::string& part : WrapAtWords(line, width, 2)) {
      lines.push_back(TruncateToWidth(part, width));
    }
  }
  return lines;
}

}  // namespace

std::vector<std::string> RenderTop(const TopScreen& screen, int columns, int rows, bool colour,
                                   bool utf8) {
  const int width = columns - 1;
  std::vector<std::string> lines = {TruncateToWidth(MakeSafe(screen.title), width)};
  if (screen.help) {
    for (std::string& line : HelpLines(width)) {
      if (static_cast<int>(lines.size()) < rows) lines.push_back(std::move(line));
    }
    return lines;
  }
  const size_t notices =
      std::min({screen.notices.size(), kNotices, static_cast<size_t>(std::max(0, rows - 5))});
  // The title, the head of the table, the line that counts the others, notices.
  const int others = 3 + static_cast<int>(notices);
  const auto room = static_cast<size_t>(std::max(1, rows - others));
  const size_t shown = std::min(screen.runs.size(), room);
  if (shown > 0) {
    for (std::string& line : TableLines(screen.runs, shown, width, colour, utf8)) {
      lines.push_back(std::move(line));
    }
  }
  if (shown < screen.runs.size()) {
    lines.push_back(TruncateToWidth(
        absl::StrCat("… ", screen.runs.size() - shown, " more; gpuctl ps lists them"), width));
  }
  for (size_t i = screen.notices.size() - notices; i < screen.notices.size(); ++i) {
    lines.push_back(TruncateToWidth(MakeSafe(screen.notices[i]), width));
  }
  const int left = rows - static_cast<int>(lines.size()) - 1;
  if (left < kLeastPlotRows) return lines;
  const std::vector<std::string> plot = PlotLines(screen.runs, width, left - 1, utf8);
  if (!plot.empty()) lines.emplace_back();
  for (const std::string& line : plot) lines.push_back(TruncateToWidth(line, width));
  return lines;
}

}  // namespace gpuctl
