// The job's stdout and stderr on their way from the pipe to the `output` stream.
#ifndef GPUCTL_AGENT_SHIM_OUTPUT_H_
#define GPUCTL_AGENT_SHIM_OUTPUT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/job/stream_file.h"

namespace gpuctl {

// Bytes that are missing from a stream: `bytes` of them, between offset-1 and offset.
struct Gap {
  int64_t offset = 0;
  int64_t bytes = 0;
};

// Never blocks and never lets the job block: what the disk does not take is read away and counted.
class OutputDrain {
 public:
  OutputDrain(UniqueFd pipe, StreamWriter stream, Clock& clock);

  // -1 once the pipe has ended.
  int fd() const { return pipe_.get(); }
  int64_t size() const { return stream_.size(); }
  StreamWriter& stream() { return stream_; }

  // Moves what the pipe holds, at most about 8 MiB, so that other descriptors get their turn. True
  // when there may be more.
  bool Pump();
  // Moves everything the pipe holds; for when nobody can write any more.
  void PumpAll();

  // A gap that is closed: bytes after it are stored. With `at_end`, an open one too.
  std::optional<Gap> TakeGap(bool at_end);
  // Why the disk does not take the output at the moment; OK when it does.
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

#endif  // GPUCTL_AGENT_SHIM_OUTPUT_H_
