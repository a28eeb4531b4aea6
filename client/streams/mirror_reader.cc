#include "client/streams/mirror_reader.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/job/job_layout.h"

namespace gpuctl {
namespace {

constexpr int64_t kReadBytes = 256 << 10;
constexpr int64_t kMetricsAtOnceBytes = 4 << 20;
constexpr int64_t kTelemetryTailBytes = 16 << 10;
constexpr int64_t kMetricsInOutputBytes = 4 << 20;

StreamShape OutputShapeOf(int64_t segment_bytes) {
  return StreamShape{segment_bytes > 0 ? segment_bytes : kDefaultSegmentBytes};
}

// Reads from `offset` on, skipping dropped bytes.
absl::StatusOr<std::string> ReadOn(StreamReader& stream, int64_t& offset) {
  std::string bytes(static_cast<size_t>(kReadBytes), '\0');
  absl::StatusOr<int64_t> count = stream.Read(offset, bytes.data(), kReadBytes);
  if (count.status().code() == absl::StatusCode::kOutOfRange) {
    ASSIGN_OR_RETURN(offset, stream.NextStored(offset));
    count = stream.Read(offset, bytes.data(), kReadBytes);
  }
  RETURN_IF_ERROR(count.status());
  bytes.resize(static_cast<size_t>(*count));
  return bytes;
}

}  // namespace

MirrorReader::MirrorReader(const std::string& mirror_dir, int64_t output_segment_bytes)
    : paths_(mirror_dir),
      output_(paths_.output, OutputShapeOf(output_segment_bytes)),
      metrics_(paths_.metrics, PlainShape()),
      telemetry_stream_(paths_.telemetry, TelemetryShape()) {}

absl::Status MirrorReader::Refresh() { return RefreshUpTo(kMaxStreamOffset).status(); }

absl::StatusOr<bool> MirrorReader::RefreshSome() { return RefreshUpTo(kMetricsAtOnceBytes); }

absl::StatusOr<bool> MirrorReader::RefreshUpTo(int64_t bytes_at_most) {
  StreamReader lifecycle(paths_.lifecycle, PlainShape());
  ASSIGN_OR_RETURN(const Extent extent, lifecycle.GetExtent());
  if (extent.size != lifecycle_size_) {
    lifecycle_size_ = extent.size;
    ASSIGN_OR_RETURN(lifecycle_, ReadMirrorLifecycle(paths_.dir));
  }
  // What is stored meanwhile waits for the next call, so that this one ends.
  ASSIGN_OR_RETURN(const Extent metrics, metrics_.GetExtent());
  const int64_t end = std::min(metrics.size, metrics_offset_ + bytes_at_most);
  while (metrics_offset_ < end) {
    ASSIGN_OR_RETURN(const std::string bytes, ReadOn(metrics_, metrics_offset_));
    if (bytes.empty()) break;
    metrics_offset_ += static_cast<int64_t>(bytes.size());
    metrics_lines_.Add(bytes, [this](absl::string_view line) {
      const std::optional<MetricSample> sample = ParseMetricsJson(line);
      if (!sample.has_value()) return;
      // The job's own metrics are better than numbers guessed from its output.
      if (!has_metrics_) progress_ = TrainingProgress();
      has_metrics_ = true;
      progress_.Add(*sample);
    });
  }
  RETURN_IF_ERROR(RefreshTelemetry());
  return metrics_offset_ < metrics.size;
}

absl::Status MirrorReader::RefreshTelemetry() {
  ASSIGN_OR_RETURN(const Extent extent, telemetry_stream_.GetExtent());
  if (extent.size == telemetry_size_) return absl::OkStatus();
  telemetry_size_ = extent.size;
  int64_t offset = std::max(extent.first_offset, extent.size - kTelemetryTailBytes);
  std::string tail;
  while (offset < extent.size) {
    ASSIGN_OR_RETURN(const std::string bytes, ReadOn(telemetry_stream_, offset));
    if (bytes.empty()) break;
    offset += static_cast<int64_t>(bytes.size());
    tail += bytes;
  }
  LineAssembler lines;
  lines.Add(tail, [this](absl::string_view line) {
    // The first line may be incomplete: the tail began in it.
    std::optional<TelemetrySample> sample = ParseTelemetry(line);
    if (sample.has_value()) telemetry_ = std::move(sample);
  });
  return absl::OkStatus();
}

absl::StatusOr<std::string> MirrorReader::ReadOutput(int64_t& offset) {
  return ReadOn(output_, offset);
}

absl::Status MirrorReader::RefreshOutputMetrics() {
  if (has_metrics_) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Extent extent, output_.GetExtent());
  if (extent.size == 0) return absl::OkStatus();
  // The caller shows the run and waits, so one call reads at most this much, even when the mirror
  // fills as fast as it is read.
  if (scanned_output_ < 0 || extent.size - scanned_output_ > kMetricsInOutputBytes) {
    scanned_output_ = std::max(extent.first_offset, extent.size - kMetricsInOutputBytes);
    (void)output_lines_.TakePartial();
  }
  while (scanned_output_ < extent.size) {
    ASSIGN_OR_RETURN(const std::string bytes, ReadOn(output_, scanned_output_));
    if (bytes.empty()) break;
    scanned_output_ += static_cast<int64_t>(bytes.size());
    const auto take = [this](absl::string_view line) {
      const std::optional<MetricSample> sample = output_metrics_.Add(line);
      if (sample.has_value()) progress_.Add(*sample);
    };
    output_lines_.Add(bytes, take);
    // A progress bar can redraw one line for hours, so take its partial line.
    if (output_lines_.partial().find('\r') != std::string::npos) take(output_lines_.TakePartial());
  }
  return absl::OkStatus();
}

absl::Status MirrorReader::ForEachMetricsLine(const std::function<void(absl::string_view)>& line) {
  int64_t offset = 0;
  LineAssembler lines;
  while (true) {
    ASSIGN_OR_RETURN(const std::string bytes, ReadOn(metrics_, offset));
    if (bytes.empty()) return absl::OkStatus();
    offset += static_cast<int64_t>(bytes.size());
    lines.Add(bytes, line);
  }
}

}  // namespace gpuctl
