// Pipes and socket pairs that no other thread's child inherits.
#ifndef GPUCTL_COMMON_PROCESS_PIPE_H_
#define GPUCTL_COMMON_PROCESS_PIPE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

struct FdPair {
  UniqueFd first;   // of a pipe: the end to read
  UniqueFd second;  // of a pipe: the end to write
};

// Close-on-exec from the beginning where the system can (Linux), and at once after it elsewhere.
// Otherwise a child started meanwhile on another thread would keep an end open, and the reader of
// the other would never see it close. Errors begin with `context`.
absl::StatusOr<FdPair> MakePipe(absl::string_view context);
absl::StatusOr<FdPair> MakeSocketPair(absl::string_view context);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_PROCESS_PIPE_H_
