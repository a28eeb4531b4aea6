// The job's metric lines on their way from the FIFO to the `metrics` stream.
#ifndef GPUCTL_AGENT_SHIM_METRICS_H_
#define GPUCTL_AGENT_SHIM_METRICS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/job/stream_file.h"

namespace gpuctl {

// One line as it is stored, newline included. A JSON object keeps its members and gets a first one,
// "gpuctl":{"attempt","output_offset","time_ms"}; any other line becomes {"gpuctl":…,"text":LINE}.
std::string FormatMetricLine(absl::string_view line, int attempt, int64_t output_offset,
                             int64_t time_ms);

// Never blocks. Lines longer than 64 KiB, and those that the disk does not take although a MiB of
// them is held back, are dropped and counted. Empty lines are ignored.
class MetricsDrain {
 public:
  // `fifo` is open for reading and writing, non-blocking: it never ends.
  MetricsDrain(UniqueFd fifo, StreamWriter stream, int attempt, Clock& clock);

  int fd() const { return fifo_.get(); }
  int64_t size() const { return stream_.size(); }
  StreamWriter& stream() { return stream_; }

  // Reads at most about 1 MiB of what the FIFO holds and stores its lines. `output_offset` is the
  // output's size now. True when there may be more.
  bool Pump(int64_t output_offset);
  // Everything that is left, a last line without newline included; for when nobody can write.
  void PumpAll(int64_t output_offset);

  // Writes what is held back.
  absl::Status Flush();
  bool pending() const { return !batch_.empty(); }
  // Gives up what is held back, counting it; for the end, on a disk that stays full.
  void DropPending();
  int64_t dropped_lines() const { return dropped_lines_; }
  // Lines dropped since the last call.
  int64_t TakeDroppedLines();

 private:
  void Consume(absl::string_view data, int64_t output_offset);
  void EndLine(int64_t output_offset);

  UniqueFd fifo_;
  StreamWriter stream_;
  int attempt_;
  Clock& clock_;
  std::string line_;       // the beginning of a line whose end was not read yet
  bool too_long_ = false;  // that line is being dropped
  std::string batch_;      // formatted lines that are not stored yet
  int64_t batch_start_ = -1;
  int64_t dropped_lines_ = 0;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SHIM_METRICS_H_
