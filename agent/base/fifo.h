// FIFOs of a job's directory.
#ifndef GPUCTL_AGENT_BASE_FIFO_H_
#define GPUCTL_AGENT_BASE_FIFO_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// Makes the FIFO unless it is there, and opens it for reading and writing, non-blocking: so it
// never ends, and nobody waits to open it for writing. FAILED_PRECONDITION for another kind of
// file.
absl::StatusOr<UniqueFd> OpenFifo(const std::string& path);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_FIFO_H_
