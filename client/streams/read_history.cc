#include "client/streams/read_history.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "client/metrics/progress.h"
#include "common/base/status_macros.h"
#include "common/metrics/epoch_steps.h"
#include "common/metrics/output_metrics.h"

namespace gpuctl {
namespace {

// An estimated time is that of the piece's end.
constexpr int64_t kPieceBytes = 2048;

// The length of the output at a moment.
struct LengthAtTime {
  int64_t offset = 0;
  int64_t time_ms = 0;
};

std::vector<LengthAtTime> LengthsOf(const Lifecycle& lifecycle, int64_t size, int64_t heard_ms) {
  std::vector<LengthAtTime> lengths;
  for (const LifecycleEvent& event : lifecycle.events) {
    if (event.time_ms <= 0 || event.output_size < 0) continue;
    if (!lengths.empty() &&
        (event.output_size < lengths.back().offset || event.time_ms < lengths.back().time_ms)) {
      continue;
    }
    lengths.push_back({event.output_size, event.time_ms});
  }
  if (!lengths.empty() && size > lengths.back().offset && heard_ms > lengths.back().time_ms) {
    lengths.push_back({size, heard_ms});
  }
  return lengths;
}

// Returns the time at which the output probably had this length; 0 when that is unknown.
int64_t TimeAt(const std::vector<LengthAtTime>& lengths, int64_t offset) {
  const auto after = std::upper_bound(
      lengths.begin(), lengths.end(), offset,
      [](int64_t wanted, const LengthAtTime& length) { return wanted < length.offset; });
  if (after == lengths.begin()) return 0;
  const LengthAtTime& before = *(after - 1);
  if (after == lengths.end()) return before.time_ms;
  const double part = static_cast<double>(offset - before.offset) /
                      static_cast<double>(after->offset - before.offset);
  return before.time_ms +
         static_cast<int64_t>(part * static_cast<double>(after->time_ms - before.time_ms));
}

absl::Status ReadPrinted(MirrorReader& mirror, int64_t heard_ms, MetricHistory& history) {
  ASSIGN_OR_RETURN(const Extent extent, mirror.OutputExtent());
  const std::vector<LengthAtTime> lengths = LengthsOf(mirror.lifecycle(), extent.size, heard_ms);
  OutputMetrics metrics;
  int64_t end = 0;
  const auto take = [&](const MetricSample& sample) {
    MetricSample stamped = sample;
    const bool estimate = stamped.time_ms == 0;
    if (estimate) stamped.time_ms = TimeAt(lengths, end);
    history.Add(stamped, estimate);
  };
  const std::vector<OutputPart> parts = OutputPartsOf(mirror.lifecycle());
  size_t next = 0;  // the first part further on
  bool setup = false;
  int64_t offset = 0;
  while (offset < extent.size) {
    ASSIGN_OR_RETURN(const std::string bytes, mirror.ReadOutput(offset));
    if (bytes.empty()) break;
    const absl::string_view all = bytes;
    for (size_t at = 0; at < all.size();) {
      int64_t size = std::min(kPieceBytes, static_cast<int64_t>(all.size() - at));
      const int64_t from = offset + static_cast<int64_t>(at);
      for (; next < parts.size() && parts[next].begin <= from; ++next) {
        metrics.BeginAttempt(parts[next].attempt, take);
        setup = parts[next].setup;
      }
      if (next < parts.size()) size = std::min(size, parts[next].begin - from);
      end = from + size;
      if (!setup) metrics.Read(all.substr(at, static_cast<size_t>(size)), take);
      at += static_cast<size_t>(size);
    }
    offset += static_cast<int64_t>(bytes.size());
  }
  metrics.Look(take);
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadHistory(MirrorReader& mirror, int64_t heard_ms, MetricHistory& history) {
  bool has_metrics = false;
  EpochSteps steps;
  RETURN_IF_ERROR(mirror.Refresh());
  RETURN_IF_ERROR(mirror.ForEachMetricsLine([&](absl::string_view line) {
    std::optional<MetricSample> sample = ParseMetricsJson(line);
    if (!sample.has_value() || sample->checkpoint) return;
    has_metrics = true;
    if (sample->loss.has_value()) steps.Unfold(StepScope::kUnknown, *sample);
    history.Add(*sample);
  }));
  return has_metrics ? absl::OkStatus() : ReadPrinted(mirror, heard_ms, history);
}

absl::Status ReadGpuHistory(MirrorReader& mirror, GpuHistory& gpus) {
  RETURN_IF_ERROR(mirror.ForEachTelemetryLine([&](absl::string_view line) {
    const std::optional<TelemetrySample> sample = ParseTelemetry(line);
    if (sample.has_value()) gpus.Add(*sample);
  }));
  gpus.Finish();
  return absl::OkStatus();
}

}  // namespace gpuctl
