// Reads a run's whole history out of its mirror: every step, and the GPUs meanwhile.
#ifndef GPUCTL_CLIENT_STREAMS_READ_HISTORY_H_
#define GPUCTL_CLIENT_STREAMS_READ_HISTORY_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/history/gpu_history.h"
#include "client/history/metric_history.h"
#include "client/history/own_metrics.h"
#include "client/streams/mirror_reader.h"
#include "client/terminal/line_assembler.h"
#include "common/metrics/epoch_steps.h"
#include "common/metrics/output_metrics.h"

namespace gpuctl {

// Reads the history of a run as its mirror grows: each call goes on where the last one ended.
class HistoryReader {
 public:
  // The step before every other: all of a history may have changed.
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::min();
  static constexpr int64_t kNothing = std::numeric_limits<int64_t>::max();

  // `mirror` and `history` outlive it, and nobody else changes `history`.
  HistoryReader(MirrorReader& mirror, MetricHistory& history)
      : mirror_(mirror), history_(history), max_points_(history.max_points()) {}

  // Adds what is stored since the last call, from about `at_most` bytes. Returns true when more is
  // stored. `heard_ms` is as in ReadHistory.
  absl::StatusOr<bool> ReadSome(int64_t heard_ms,
                                int64_t at_most = std::numeric_limits<int64_t>::max());
  // Adds the numbers of an output's last line, which has no end. Nothing may be read after it.
  void Finish();

  // Returns the first step that may be other than at the last call; kNothing when none is.
  int64_t TakeChanged();
  // The checkpoints that the run's metrics tell of, in their order.
  const std::vector<MetricSample>& checkpoints() const { return checkpoints_; }
  // The newest of the numbers that the job writes as metrics under names of its own.
  const NewestOwn& own() const { return own_; }

 private:
  void Add(const MetricSample& sample, bool time_is_estimate);
  void Restart();
  absl::StatusOr<bool> ReadMetrics(int64_t at_most);
  absl::StatusOr<bool> ReadPrinted(int64_t heard_ms, int64_t at_most);
  void AddPrinted(const MetricSample& sample, int64_t end);

  // The length of the output at a moment.
  struct LengthAtTime {
    int64_t offset = 0;
    int64_t time_ms = 0;
  };
  static std::vector<LengthAtTime> LengthsOf(const Lifecycle& lifecycle, int64_t size,
                                             int64_t heard_ms);
  static int64_t TimeAt(const std::vector<LengthAtTime>& lengths, int64_t offset);

  MirrorReader& mirror_;
  MetricHistory& history_;
  const size_t max_points_;
  int64_t metrics_offset_ = 0, output_offset_ = 0;
  LineAssembler metrics_lines_;
  EpochSteps steps_;
  OutputMetrics output_metrics_;
  std::vector<LengthAtTime> lengths_;
  bool has_metrics_ = false;
  int64_t changed_ = kNothing;
  std::vector<MetricSample> checkpoints_;
  NewestOwn own_;
};

// Adds every step that the job wrote as metrics, or, when it wrote none, that its output tells. The
// lines of an output have no stamps: their times are estimates, from the times at which the
// attempts began and ended, and the output's length then. `heard_ms` is the time of the node's last
// sign of life, for an attempt that has no end.
absl::Status ReadHistory(MirrorReader& mirror, int64_t heard_ms, MetricHistory& history);

// Adds all telemetry that is stored here: of a long run only the newest part.
absl::Status ReadGpuHistory(MirrorReader& mirror, GpuHistory& gpus);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_STREAMS_READ_HISTORY_H_
