// Reads a run's mirror as it grows, for showing. The renderer's only source: a blocked terminal
// then never holds up the link.
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
  // A mirror that does not exist yet is empty.
  MirrorReader(const std::string& mirror_dir, int64_t output_segment_bytes);

  // Looks at all streams but the output; cheap when nothing changed.
  absl::Status Refresh();
  const Lifecycle& lifecycle() const { return lifecycle_; }
  const TrainingProgress& progress() const { return progress_; }
  const std::optional<TelemetrySample>& telemetry() const { return telemetry_; }

  absl::StatusOr<Extent> OutputExtent() { return output_.GetExtent(); }
  // Up to 256 KiB of the output from `offset`, or from the first byte stored behind it, whose
  // offset `offset` becomes. Empty at the end.
  absl::StatusOr<std::string> ReadOutput(int64_t& offset);

  // Looks for numbers in the output too, in what is new of its last 4 MiB, unless the job writes
  // metrics.
  absl::Status RefreshOutputMetrics();
  // Every line of metrics from the beginning, for `gpuctl metrics`.
  absl::Status ForEachMetricsLine(const std::function<void(absl::string_view)>& line);

 private:
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
