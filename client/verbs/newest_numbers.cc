#include "client/verbs/newest_numbers.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_split.h"
#include "client/streams/mirror_reader.h"
#include "common/job/job_layout.h"
#include "common/job/stream_file.h"
#include "common/metrics/metric_lines.h"

namespace gpuctl {
namespace {

constexpr int64_t kMetricsTailBytes = 16 << 10;

// Returns the last whole lines of the metrics.
std::string TailOf(const std::string& path) {
  StreamReader stream(path, PlainShape());
  const absl::StatusOr<Extent> extent = stream.GetExtent();
  if (!extent.ok() || extent->size == 0) return "";
  std::string tail(static_cast<size_t>(kMetricsTailBytes), '\0');
  const int64_t begin = std::max<int64_t>(0, extent->size - kMetricsTailBytes);
  const absl::StatusOr<int64_t> count = stream.Read(begin, tail.data(), kMetricsTailBytes);
  if (!count.ok()) return "";
  tail.resize(static_cast<size_t>(*count));
  // What follows the last newline is no line yet, and the first may be cut.
  const size_t end = tail.rfind('\n');
  tail.resize(end == std::string::npos ? 0 : end);
  if (begin > 0) tail.erase(0, std::min(tail.size(), tail.find('\n')));
  return tail;
}

// Lines that may be overdue, and the time beside them, before a job counts as stalled.
constexpr double kLinesOverdue = 5;
constexpr int64_t kOverdueMs = 60'000;

// Returns the time that the rest takes, at the pace since the oldest of `lines` with a step of the
// same attempt as `newest`; nothing for a job that has stalled by `heard_ms`.
std::optional<absl::Duration> TimeLeft(const std::vector<absl::string_view>& lines,
                                       const MetricSample& newest, int64_t heard_ms) {
  if (newest.time_ms == 0 || newest.total_steps.value_or(0) <= newest.step.value_or(0)) {
    return std::nullopt;
  }
  for (const absl::string_view line : lines) {
    const std::optional<MetricSample> oldest = ParseMetricsJson(line);
    if (!oldest.has_value() || !oldest->step.has_value() || oldest->attempt != newest.attempt) {
      continue;
    }
    const int64_t steps = *newest.step - *oldest->step;
    const int64_t ms = newest.time_ms - oldest->time_ms;
    if (oldest->time_ms == 0 || steps <= 0 || ms <= 0) return std::nullopt;
    const double ms_per_line = static_cast<double>(ms) / static_cast<double>(lines.size());
    if (static_cast<double>(heard_ms - newest.time_ms) >
        static_cast<double>(kOverdueMs) + kLinesOverdue * ms_per_line) {
      return std::nullopt;
    }
    const double ms_per_step = static_cast<double>(ms) / static_cast<double>(steps);
    return absl::Milliseconds(ms_per_step *
                              static_cast<double>(*newest.total_steps - *newest.step));
  }
  return std::nullopt;
}

std::optional<absl::Duration> ReadMetrics(const std::string& path, RunRow& row) {
  const std::string tail = TailOf(path);
  const std::vector<absl::string_view> lines = absl::StrSplit(tail, '\n', absl::SkipEmpty());
  // From the end, so that usually one line is parsed.
  MetricSample newest;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const std::optional<MetricSample> sample = ParseMetricsJson(*line);
    if (!sample.has_value() || sample->checkpoint) continue;
    if (!newest.step.has_value() && sample->step.has_value()) {
      newest.step = sample->step;
      newest.time_ms = sample->time_ms;
      newest.attempt = sample->attempt;
    }
    if (!newest.total_steps.has_value()) newest.total_steps = sample->total_steps;
    if (!newest.loss.has_value()) newest.loss = sample->loss;
    if (newest.step.has_value() && newest.total_steps.has_value() && newest.loss.has_value()) break;
  }
  row.step = newest.step.value_or(row.step);
  row.total_steps = newest.total_steps.value_or(row.total_steps);
  if (newest.loss.has_value()) row.loss = newest.loss;
  return TimeLeft(lines, newest, row.heard_ms);
}

// Reads what came since the last look.
std::optional<absl::Duration> ReadOutput(const std::string& mirror_dir, RunRow& row) {
  MirrorReader mirror(mirror_dir, row.output_segment_bytes);
  if (!mirror.Refresh().ok() || !mirror.RefreshOutputMetrics().ok()) return std::nullopt;
  const TrainingProgress& progress = mirror.progress();
  if (progress.empty()) return std::nullopt;
  row.step = progress.step();
  row.total_steps = progress.total_steps();
  row.loss = progress.loss();
  return progress.Eta();
}

}  // namespace

std::optional<absl::Duration> ReadNewestNumbers(const MirrorPaths& mirror, RunRow& row) {
  const std::optional<absl::Duration> left = ReadMetrics(mirror.metrics, row);
  if (row.step < 0 && !row.loss.has_value()) return ReadOutput(mirror.dir, row);
  return left;
}

}  // namespace gpuctl
