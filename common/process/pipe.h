// Pipes and socket pairs that children started on other threads do not inherit.
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

// Make both ends close-on-exec: at creation where the system can (Linux), right after it elsewhere.
// A child that another thread starts would otherwise keep one end open, and the reader of the other
// end would never see it close. Errors begin with `context`.
absl::StatusOr<FdPair> MakePipe(absl::string_view context);
absl::StatusOr<FdPair> MakeSocketPair(absl::string_view context);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_PROCESS_PIPE_H_
