#include "client/verbs/metrics_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/run_program.h"
#include "client/history/event_file.h"
#include "client/history/svg_chart.h"
#include "client/terminal/safe_text.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"

namespace gpuctl {
namespace {

// Draws SVG as PNG. It is a program of librsvg, so that gpuctl links no library for drawing.
constexpr char kConverter[] = "rsvg-convert";

constexpr mode_t kFileMode = 0644;
constexpr mode_t kDirectoryMode = 0755;

// Returns a run's numbers as points of a curve, with the values that `value` finds.
std::vector<PlotPoint> CurveOf(
    const MetricHistory& history,
    const std::function<std::optional<double>(const HistoryPoint&)>& value) {
  std::vector<PlotPoint> points;
  for (const HistoryPoint& point : history.points()) {
    if (const std::optional<double> y = value(point); y.has_value()) {
      points.push_back({static_cast<double>(point.step), *y});
    }
  }
  return points;
}

std::vector<PlotPoint> UtilizationOf(const GpuHistory& gpus) {
  std::vector<PlotPoint> points;
  for (const GpuHistory::Group& group : gpus.groups()) {
    if (const auto mean = group.Mean(GpuHistory::kUtilization); mean.has_value()) {
      points.push_back({static_cast<double>(group.step), *mean});
    }
  }
  return points;
}

// Appends to a file that has the beginning of `bytes`, else replaces it. Two gpuctl may do so at
// once: the file's lock is held from the look to the write.
absl::Status BringUpToDate(const std::string& path, const std::string& bytes) {
  const UniqueFd file(file_ops::Open(path, O_RDWR | O_APPEND | O_NOFOLLOW | O_NONBLOCK));
  struct stat info {};
  if (!file.valid() || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_size > static_cast<int64_t>(bytes.size())) {
    return WriteFileAtomic(path, bytes, kFileMode);
  }
  (void)flock(file.get(), LOCK_EX);
  std::string old(bytes.size(), '\0');
  size_t size = 0;
  ssize_t got = 0;
  while (size < old.size() && (got = pread(file.get(), old.data() + size, old.size() - size,
                                           static_cast<off_t>(size))) > 0) {
    size += static_cast<size_t>(got);
  }
  old.resize(size);
  // A longer file cannot be told from what was read of it.
  const bool longer = fstat(file.get(), &info) != 0 || info.st_size != static_cast<int64_t>(size);
  if (got < 0 || longer || !absl::StartsWith(bytes, old)) {
    return WriteFileAtomic(path, bytes, kFileMode);
  }
  return WriteAll(file.get(), absl::string_view(bytes).substr(size), path);
}

}  // namespace

absl::StatusOr<std::vector<WrittenFile>> WriteEventFiles(const RunNumbersList& runs,
                                                         const std::string& dir) {
  std::vector<WrittenFile> files;
  for (const auto& run : runs) {
    if (run->history.points().empty()) continue;
    // The name comes from the list of runs, which somebody may have changed.
    if (!IsSafeRelativePath(run->row.name) || absl::StrContains(run->row.name, "/")) {
      return absl::FailedPreconditionError(
          absl::StrCat("the run's name cannot name a directory: ", run->row.name));
    }
    const std::string run_dir = JoinPath(dir, run->row.name);
    RETURN_IF_ERROR(MakeDirectories(run_dir, kDirectoryMode));
    WrittenFile file{run->row.run_id, run->row.name, "", 0};
    file.path = JoinPath(
        run_dir, absl::StrCat("events.out.tfevents.", run->row.created_ms / 1000, ".gpuctl"));
    const std::string bytes = FormatEventFile(run->history, *run->gpus, run->row.created_ms);
    RETURN_IF_ERROR(BringUpToDate(file.path, bytes));
    file.bytes = static_cast<int64_t>(bytes.size());
    files.push_back(std::move(file));
  }
  return files;
}

namespace {

// Returns the drawing as PNG, twice as large, for screens of today.
absl::StatusOr<std::string> PngOf(const std::string& svg) {
  ASSIGN_OR_RETURN(const std::string dir, MakeTempDirectory("gpuctl-plot-"));
  const std::string from = JoinPath(dir, "a.svg"), to = JoinPath(dir, "a.png");
  absl::StatusOr<std::string> png = [&]() -> absl::StatusOr<std::string> {
    RETURN_IF_ERROR(WriteFileAtomic(from, svg));
    ASSIGN_OR_RETURN(const ProgramEnd end,
                     RunWithin(absl::Minutes(1), {FindInPath(kConverter), "--format=png",
                                                  "--zoom=2", "--output", to, from}));
    if (end.exit_code != 0) {
      return absl::FailedPreconditionError(absl::StrCat("ended with code ", end.exit_code));
    }
    return ReadFileToString(to);
  }();
  (void)RemoveTree(dir);
  if (!png.ok()) return Annotate(png.status(), absl::StrCat("draw a PNG with ", kConverter));
  return png;
}

}  // namespace

absl::Status CheckPlotName(const std::string& path) {
  const std::string lower = absl::AsciiStrToLower(path);
  const bool named = BaseName(path).size() > 4;
  if (absl::EndsWith(lower, ".svg") && named) return absl::OkStatus();
  if (!absl::EndsWith(lower, ".png") || !named) {
    return UsageError(absl::StrCat("--plot draws SVG and PNG files, not \"", path, "\""),
                      "name it FILE.svg or FILE.png");
  }
  if (!FindInPath(kConverter).empty()) return absl::OkStatus();
  return UsageError(absl::StrCat("--plot: a PNG needs ", kConverter, ", which is not here"),
                    "install librsvg2-bin (Debian, Ubuntu) or librsvg (Homebrew), or name it "
                    "FILE.svg: a browser shows it, and saves it as PNG");
}

absl::StatusOr<WrittenFile> WritePlot(const RunNumbersList& runs, const std::string& path,
                                      const std::string& metric, bool log_y) {
  std::vector<std::string> names;
  SvgChart loss{metric.empty() ? "loss" : MakeSafe(metric), 360, true, {}, {}, {}, {}};
  SvgChart rate{"learning rate", 90, false, 0.0, {}, {}, {}};
  SvgChart speed{"tokens per second", 90, true, 0.0, {}, {}, {}};
  SvgChart gpu{"GPU utilization, %", 90, true, 0.0, 100.0, {}, {}};
  loss.logarithmic = log_y;
  for (const auto& run : runs) {
    const MetricHistory& history = run->history;
    names.push_back(run->label);
    if (metric.empty()) {
      loss.curves.push_back(CurveOf(history, [](const HistoryPoint& point) { return point.loss; }));
      loss.circles.push_back(
          CurveOf(history, [](const HistoryPoint& point) { return point.eval_loss; }));
    } else {
      loss.curves.push_back(run->chosen);
    }
    rate.curves.push_back(
        CurveOf(history, [](const HistoryPoint& point) { return point.learning_rate; }));
    speed.curves.push_back(
        CurveOf(history, [](const HistoryPoint& point) { return point.tokens_per_s; }));
    gpu.curves.push_back(UtilizationOf(*run->gpus));
  }
  const std::string svg = FormatSvg(names, {loss, rate, speed, gpu}, "step");
  if (svg.empty()) {
    return WithHint(absl::NotFoundError("there is nothing to draw: no run has numbers yet"),
                    absl::StrCat("gpuctl logs ", runs[0]->row.name, " shows what it printed"));
  }
  std::string bytes = svg;
  if (absl::EndsWith(absl::AsciiStrToLower(path), ".png")) {
    ASSIGN_OR_RETURN(bytes, PngOf(svg));
  }
  RETURN_IF_ERROR(WriteFileAtomic(path, bytes, kFileMode));
  WrittenFile file;
  file.path = path;
  file.bytes = static_cast<int64_t>(bytes.size());
  return file;
}

}  // namespace gpuctl
