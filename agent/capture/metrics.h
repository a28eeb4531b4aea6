// Copying the job's metric lines from the FIFO to the `metrics` stream.
#ifndef GPUCTL_AGENT_CAPTURE_METRICS_H_
#define GPUCTL_AGENT_CAPTURE_METRICS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/job/stream_file.h"

namespace gpuctl {

// Returns one line in its stored form, with newline. A JSON object keeps its members and gets a new
// first one, "gpuctl":{"attempt","output_offset","time_ms"}. Any other line becomes
// {"gpuctl":…,"text":LINE}.
std::string FormatMetricLine(absl::string_view line, int attempt, int64_t output_offset,
                             int64_t time_ms);

// Copies metric lines and never blocks. It holds back up to a MiB of lines that the disk refuses;
// further ones, and lines longer than 64 KiB, are dropped and counted. Empty lines are ignored.
class MetricsDrain {
 public:
  // `fifo` is non-blocking and open for reading and writing, so that it never ends.
  MetricsDrain(UniqueFd fifo, StreamWriter stream, int attempt, Clock& clock);

  int fd() const { return fifo_.get(); }
  int64_t size() const { return stream_.size(); }
  StreamWriter& stream() { return stream_; }

  // Reads up to about 1 MiB from the FIFO and stores its lines. `output_offset` is the present size
  // of the output. True when there may be more.
  bool Pump(int64_t output_offset);
  // Stores everything that is left, also a last line without newline. For the time when nobody can
  // write any more.
  void PumpAll(int64_t output_offset);

  // Writes the lines held back.
  absl::Status Flush();
  bool pending() const { return !batch_.empty(); }
  // Drops and counts the lines held back. For the end, on a disk that stays full.
  void DropPending();
  int64_t dropped_lines() const { return dropped_lines_; }
  // Returns the number of lines dropped since the last call.
  int64_t TakeDroppedLines();

 private:
  void Consume(absl::string_view data, int64_t output_offset);
  void EndLine(int64_t output_offset);

  UniqueFd fifo_;
  StreamWriter stream_;
  int attempt_;
  Clock& clock_;
  std::string line_;       // the beginning of an unfinished line
  bool too_long_ = false;  // that line is being dropped
  std::string batch_;      // formatted lines not stored yet
  int64_t batch_start_ = -1;
  int64_t dropped_lines_ = 0;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_CAPTURE_METRICS_H_
