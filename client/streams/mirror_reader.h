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
#include "client/history/own_metrics.h"
#include "client/metrics/progress.h"
#include "client/streams/mirror.h"
#include "client/terminal/line_assembler.h"
#include "common/job/lifecycle.h"
#include "common/job/stream_file.h"
#include "common/metrics/epoch_steps.h"
#include "common/metrics/output_metrics.h"

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
  // Returns the numbers that the job writes as metrics; those of its output when it writes none.
  // While more output is stored than was read, those of its newest part.
  const TrainingProgress& progress() const {
    if (has_metrics_) return reported_;
    return newest_.empty() ? printed_ : newest_;
  }
  const std::optional<TelemetrySample>& telemetry() const { return telemetry_; }
  // The newest of the numbers that the job writes as metrics under names of its own.
  const NewestOwn& own() const { return own_; }

  absl::StatusOr<Extent> OutputExtent() { return output_.GetExtent(); }
  // Returns up to 256 KiB of the output from `offset`. If that byte is not stored, begins at the
  // next stored one and sets `offset` to it. Empty at the end.
  absl::StatusOr<std::string> ReadOutput(int64_t& offset);
  // The same of the metrics and of the telemetry.
  absl::StatusOr<Extent> MetricsExtent() { return metrics_.GetExtent(); }
  absl::StatusOr<std::string> ReadMetrics(int64_t& offset);
  absl::StatusOr<Extent> TelemetryExtent() { return telemetry_stream_.GetExtent(); }
  absl::StatusOr<std::string> ReadTelemetry(int64_t& offset);

  // Reads numbers from the output too, unless the job writes metrics. Each byte is read once: a
  // file beside the mirror keeps what was found, also for the next gpuctl. Reads at most `at_most`
  // bytes and, when more is stored, the newest megabyte: its step counts within its epoch when only
  // earlier output could tell the epochs.
  absl::Status RefreshOutputMetrics(int64_t at_most = kOutputAtOnce);
  // Reads all numbers, of metrics and output.
  absl::Status RefreshAll();
  // Passes every line of metrics from the beginning to `line`, for `gpuctl metrics`.
  absl::Status ForEachMetricsLine(const std::function<void(absl::string_view)>& line);
  // Passes every stored line of telemetry; the first one may be torn.
  absl::Status ForEachTelemetryLine(const std::function<void(absl::string_view)>& line);

 private:
  // So much is read within a fraction of a second: the caller shows the run and waits.
  static constexpr int64_t kOutputAtOnce = 32 << 20;

  absl::StatusOr<bool> RefreshUpTo(int64_t bytes);
  absl::Status RefreshTelemetry();
  static absl::Status ForEachLine(StreamReader& stream,
                                  const std::function<void(absl::string_view)>& line);
  absl::Status LoadNumbers();
  void SaveNumbers();
  absl::StatusOr<std::string> BytesBefore(int64_t offset);
  absl::Status ReadNewest(int64_t size);
  MirrorPaths paths_;
  std::string numbers_path_;
  StreamReader output_, metrics_, telemetry_stream_;
  int64_t lifecycle_size_ = -1;
  Lifecycle lifecycle_;
  int64_t metrics_offset_ = 0, telemetry_size_ = 0;
  int64_t scanned_output_ = -1, saved_output_ = 0;  // -1: what was stored is not loaded yet
  LineAssembler metrics_lines_;
  OutputMetrics output_metrics_;
  EpochSteps reported_steps_;
  TrainingProgress reported_, printed_;
  TrainingProgress newest_;  // empty unless output was skipped to read it
  bool has_metrics_ = false;
  std::optional<TelemetrySample> telemetry_;
  NewestOwn own_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_STREAMS_MIRROR_READER_H_
