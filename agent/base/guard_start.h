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
absl::Status EnsureGuard(const RootPaths& paths, const std::string& bundle_dir);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_GUARD_START_H_
