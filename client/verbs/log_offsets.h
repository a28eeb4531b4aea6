// Offsets in a run's output at which to begin to print. Pure.
#ifndef GPUCTL_CLIENT_VERBS_LOG_OFFSETS_H_
#define GPUCTL_CLIENT_VERBS_LOG_OFFSETS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gpuctl {

// The length of the output at a moment.
struct OutputStamp {
  int64_t time_ms = 0;
  int64_t offset = 0;
};

// Returns an offset before all output since `time_ms`, as late as the stamps allow.
int64_t OffsetAt(const std::vector<OutputStamp>& stamps, int64_t time_ms);

// Returns the offset at which the last `lines` lines of [begin, end) begin; an unfinished line
// counts. `read` returns the bytes between two offsets.
absl::StatusOr<int64_t> OffsetOfLastLines(
    int64_t begin, int64_t end, int lines,
    const std::function<absl::StatusOr<std::string>(int64_t from, int64_t to)>& read);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_LOG_OFFSETS_H_
