// Reads a run's growing mirror, to show it. The renderer has no other source, so a blocked terminal
// never delays the link.
#ifndef GPUCTL_CLIENT_STREAMS_MIRROR_READER_H_
#define GPUCTL_CLIENT_STREAMS_MIRROR_READER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/metrics/progress.h"
#include "client/streams/mirror.h"
#include "client/terminal/line_assembler.h"
#include "common/job/lifecycle.h"
#include "common/job/stream_file.h"

namespace gpuctl {

class MirrorReader {
 public:
  // Accepts a mirror that does not exist yet: it is empty.
  MirrorReader(const std::string& mirror_dir, int64_t output_segment_bytes);

  // Reads all streams but the output, as far as they are stored now; cheap when nothing changed.
  absl::Status Refresh();
  // Does the same, but reads at most 4 MiB of metrics: for callers that must also hear signals.
  // Returns true when more is stored.
  absl::StatusOr<bool> RefreshSome();
  const Lifecycle& lifecycle() const { return lifecycle_; }
  const TrainingProgress& progress() const { return progress_; }
  const std::optional<TelemetrySample>& telemetry() const { return telemetry_; }

  absl::StatusOr<Extent> OutputExtent() { return output_.GetExtent(); }
  // Returns up to 256 KiB of the output from `offset`. If that byte is not stored, begins at the
  // next stored one and sets `offset` to it. Empty at the end.
  absl::StatusOr<std::string> ReadOutput(int64_t& offset);

  // Reads numbers from the output too, from the new part of its last 4 MiB, unless the job writes
  // metrics.
  absl::Status RefreshOutputMetrics();
  // Passes every line of metrics from the beginning to `line`, for `gpuctl metrics`.
  absl::Status ForEachMetricsLine(const std::function<void(absl::string_view)>& line);

 private:
  absl::StatusOr<bool> RefreshUpTo(int64_t bytes);
  absl::Status RefreshTelemetry();
  MirrorPaths paths_;
  StreamReader output_, metrics_, telemetry_stream_;
  int64_t lifecycle_size_ = -1;
  Lifecycle lifecycle_;
  int64_t metrics_offset_ = 0, telemetry_size_ = 0, scanned_output_ = -1;
  LineAssembler metrics_lines_, output_lines_;
  OutputMetrics output_metrics_;
  TrainingProgress progress_;
  bool has_metrics_ = false;
  std::optional<TelemetrySample> telemetry_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_STREAMS_MIRROR_READER_H_
