// Commands to the guard: lines in its FIFO.
#ifndef GPUCTL_AGENT_GUARD_CONTROL_H_
#define GPUCTL_AGENT_GUARD_CONTROL_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// Sends a command: "upgrade" (become bin/current) or "exit" (end the server and exit, unless a job
// runs). FAILED_PRECONDITION when no guard listens.
absl::Status SendGuardCommand(const RootPaths& paths, absl::string_view command);

// `gpuctl-agent shutdown`: ends the guard and the server of a node without running jobs, and waits
// until both locks are free. Returns the exit code: 0, or 1 after printing why not.
int RunShutdown(const std::string& root);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_GUARD_CONTROL_H_
