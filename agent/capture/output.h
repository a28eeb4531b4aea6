// Copying the job's stdout and stderr from the pipe to the `output` stream.
#ifndef GPUCTL_AGENT_CAPTURE_OUTPUT_H_
#define GPUCTL_AGENT_CAPTURE_OUTPUT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/job/stream_file.h"

namespace gpuctl {

// A gap in a stream: `bytes` bytes are missing between offset-1 and offset.
struct Gap {
  int64_t offset = 0;
  int64_t bytes = 0;
};

// Copies the output. It never blocks, nor lets the job block: bytes that the disk refuses are
// dropped and counted.
class OutputDrain {
 public:
  OutputDrain(UniqueFd pipe, StreamWriter stream, Clock& clock);

  // Returns the pipe's descriptor, or -1 after the pipe has ended.
  int fd() const { return pipe_.get(); }
  int64_t size() const { return stream_.size(); }
  StreamWriter& stream() { return stream_; }

  // Moves bytes from the pipe, at most about 8 MiB, so that other descriptors get their turn. True
  // when there may be more.
  bool Pump();
  // Moves everything in the pipe. For the time when nobody can write any more.
  void PumpAll();

  // Returns a closed gap, after which bytes are stored. With `at_end` also an open gap.
  std::optional<Gap> TakeGap(bool at_end);
  // Returns the reason why the disk refuses the output at the moment; OK when it does not.
  const absl::Status& trouble() const { return trouble_; }

 private:
  enum class Step { kMoved, kEmpty, kEnded };
  Step MoveOnce();
  Step SpliceOnce();
  Step CopyOnce();
  Step ReadAway();
  void BeginGap(absl::Status why);
  void CloseGap();

  UniqueFd pipe_;
  StreamWriter stream_;
  Clock& clock_;
  bool can_splice_ = true;
  std::vector<char> buffer_;
  absl::Status trouble_;
  absl::Duration retry_at_;
  std::optional<Gap> open_gap_;
  std::optional<Gap> closed_gap_;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_CAPTURE_OUTPUT_H_
