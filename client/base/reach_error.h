// Errors of reaching a node. They begin with its name.
#ifndef GPUCTL_CLIENT_BASE_REACH_ERROR_H_
#define GPUCTL_CLIENT_BASE_REACH_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// Returns `status` with "reach `node`: " before its message. Keeps code and payloads. Returns OK,
// and a status that has the prefix from an earlier call, unchanged.
absl::Status ReachError(const absl::Status& status, absl::string_view node);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_REACH_ERROR_H_
