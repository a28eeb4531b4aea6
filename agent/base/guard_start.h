// Making sure that a guard runs. The server, the bridge and the shim do it; the shim may be the
// only process left.
#ifndef GPUCTL_AGENT_BASE_GUARD_START_H_
#define GPUCTL_AGENT_BASE_GUARD_START_H_

#include <string>

#include "absl/status/status.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// Starts `gpuctl-agent guard` in a session of its own when the guard's lock is free. It starts the
// guard of bin/current, because the caller may be older, or else that of `bundle_dir`. A second
// guard does no harm: it finds the lock held and exits.
// In a held root (held_root.h) it starts nothing: it waits for the holder, at most 15 seconds.
// FAILED_PRECONDITION when the holder does not run.
absl::Status EnsureGuard(const RootPaths& paths, const std::string& bundle_dir);

// Does that for a shim, where a guard ran before and none runs now: the guard enforces the time
// limits and keeps the server alive. `bundle_dir` is the shim's. Says so on stderr.
void TendGuard(const RootPaths& paths, const std::string& bundle_dir);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_GUARD_START_H_
