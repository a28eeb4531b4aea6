// The secrets of jobs that wait, from a server that ends to the next one. They pass through a pipe
// without a name, which the guard holds open meanwhile: they are in the kernel's memory, never on a
// disk.
#ifndef GPUCTL_AGENT_HANDOVER_H_
#define GPUCTL_AGENT_HANDOVER_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/jobs/shim_launcher.h"
#include "common/base/unique_fd.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// Makes the pipe; for the guard, which gives it to each server as its stdin.
absl::StatusOr<UniqueFd> MakeHandover(const RootPaths& paths);

// Returns the pipe that the guard gave to this server, which had it as stdin; invalid when it gave
// none, as guards before this version do.
UniqueFd TakeHandover();

// Writes the secrets, by the id of the job. RESOURCE_EXHAUSTED when not all of them fit: a pipe has
// 64 KiB to 1 MiB.
absl::Status HandOver(const UniqueFd& handover, const std::map<std::string, Secrets>& secrets);

// Returns what the last server wrote, and empties the pipe. What is torn is left out.
std::map<std::string, Secrets> ReceiveHandover(const UniqueFd& handover);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_HANDOVER_H_
