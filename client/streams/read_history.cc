#include "client/streams/read_history.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/metrics/progress.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

// An estimated time is that of the piece's end.
constexpr int64_t kPieceBytes = 2048;
// A job may write any number of lines about checkpoints.
constexpr size_t kMostCheckpoints = 10'000;

}  // namespace

std::vector<HistoryReader::LengthAtTime> HistoryReader::LengthsOf(const Lifecycle& lifecycle,
                                                                  int64_t size, int64_t heard_ms) {
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
int64_t HistoryReader::TimeAt(const std::vector<LengthAtTime>& lengths, int64_t offset) {
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

void HistoryReader::Add(const MetricSample& sample, bool time_is_estimate) {
  const std::vector<HistoryPoint>& points = history_.points();
  const size_t count = points.size();
  const int64_t last = points.empty() ? kAll : points.back().step;
  history_.Add(sample, time_is_estimate);
  changed_ = std::min({changed_, last, sample.step.value_or(last)});
  // Thinning drops points from the whole of it.
  if (points.size() < count && !points.empty() && points.back().step >= last) changed_ = kAll;
}

// Begins anew: what was read is not what is stored now, or there is something better to read.
void HistoryReader::Restart() {
  history_ = MetricHistory(max_points_);
  metrics_offset_ = output_offset_ = 0;
  metrics_lines_ = LineAssembler();
  steps_ = EpochSteps();
  output_metrics_ = OutputMetrics();
  has_metrics_ = false;
  checkpoints_.clear();
  changed_ = kAll;
}

absl::StatusOr<bool> HistoryReader::ReadMetrics(int64_t at_most) {
  ASSIGN_OR_RETURN(const Extent extent, mirror_.MetricsExtent());
  if (metrics_offset_ > extent.size) Restart();  // the node never had these bytes
  const int64_t end =
      at_most < extent.size - metrics_offset_ ? metrics_offset_ + at_most : extent.size;
  while (metrics_offset_ < end) {
    ASSIGN_OR_RETURN(const std::string bytes, mirror_.ReadMetrics(metrics_offset_));
    if (bytes.empty()) return false;
    metrics_offset_ += static_cast<int64_t>(bytes.size());
    metrics_lines_.Add(bytes, [&](absl::string_view line) {
      std::optional<MetricSample> sample = ParseMetricsJson(line);
      own_.Add(line);
      if (!sample.has_value()) return;
      if (sample->checkpoint) {
        if (checkpoints_.size() < kMostCheckpoints) checkpoints_.push_back(*sample);
        return;
      }
      if (!has_metrics_ && output_offset_ > 0) {
        // The job's own numbers are better than those guessed from its output.
        history_ = MetricHistory(max_points_);
        changed_ = kAll;
      }
      has_metrics_ = true;
      if (sample->loss.has_value()) steps_.Unfold(StepScope::kUnknown, *sample);
      Add(*sample, /*time_is_estimate=*/false);
    });
  }
  return metrics_offset_ < extent.size;
}

void HistoryReader::AddPrinted(const MetricSample& sample, int64_t end) {
  MetricSample stamped = sample;
  const bool estimate = stamped.time_ms == 0;
  if (estimate) stamped.time_ms = TimeAt(lengths_, end);
  Add(stamped, estimate);
}

absl::StatusOr<bool> HistoryReader::ReadPrinted(int64_t heard_ms, int64_t at_most) {
  ASSIGN_OR_RETURN(const Extent extent, mirror_.OutputExtent());
  if (output_offset_ > extent.size) Restart();
  lengths_ = LengthsOf(mirror_.lifecycle(), extent.size, heard_ms);
  const int64_t begin = output_offset_;
  int64_t end = 0;
  const auto take = [&](const MetricSample& sample) { AddPrinted(sample, end); };
  const std::vector<OutputPart> parts = OutputPartsOf(mirror_.lifecycle());
  size_t next = 0;  // the first part further on
  bool setup = false;
  while (output_offset_ < extent.size && output_offset_ - begin < at_most) {
    ASSIGN_OR_RETURN(const std::string bytes, mirror_.ReadOutput(output_offset_));
    if (bytes.empty()) break;
    const absl::string_view all = bytes;
    for (size_t at = 0; at < all.size();) {
      int64_t size = std::min(kPieceBytes, static_cast<int64_t>(all.size() - at));
      const int64_t from = output_offset_ + static_cast<int64_t>(at);
      for (; next < parts.size() && parts[next].begin <= from; ++next) {
        output_metrics_.BeginAttempt(parts[next].attempt, take, parts[next].ranks);
        setup = parts[next].setup;
      }
      if (next < parts.size()) size = std::min(size, parts[next].begin - from);
      end = from + size;
      if (!setup) output_metrics_.Read(all.substr(at, static_cast<size_t>(size)), take);
      at += static_cast<size_t>(size);
    }
    output_offset_ += static_cast<int64_t>(bytes.size());
  }
  return output_offset_ < extent.size;
}

absl::StatusOr<bool> HistoryReader::ReadSome(int64_t heard_ms, int64_t at_most) {
  RETURN_IF_ERROR(mirror_.RefreshSome().status());
  ASSIGN_OR_RETURN(const bool more, ReadMetrics(at_most));
  // Only all metrics tell that a job writes none.
  return has_metrics_ || more ? more : ReadPrinted(heard_ms, at_most);
}

void HistoryReader::Finish() {
  if (has_metrics_) return;
  output_metrics_.Look([this](const MetricSample& sample) { AddPrinted(sample, output_offset_); });
}

int64_t HistoryReader::TakeChanged() { return std::exchange(changed_, kNothing); }

absl::Status ReadHistory(MirrorReader& mirror, int64_t heard_ms, MetricHistory& history) {
  RETURN_IF_ERROR(mirror.Refresh());
  HistoryReader reader(mirror, history);
  RETURN_IF_ERROR(reader.ReadSome(heard_ms).status());
  reader.Finish();
  return absl::OkStatus();
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
