// Making sure a guard runs. Everything on the node but the guard itself does: the server, the
// bridge, and the shim, which may be the only one left.
#ifndef GPUCTL_AGENT_BASE_GUARD_START_H_
#define GPUCTL_AGENT_BASE_GUARD_START_H_

#include <string>

#include "absl/status/status.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// Starts `gpuctl-agent guard` in a session of its own when the guard's lock is free: that of
// bin/current, for whoever asks may be older, and else that of `bundle_dir`. Starting one too many
// does no harm: it finds the lock held and leaves.
absl::Status EnsureGuard(const RootPaths& paths, const std::string& bundle_dir);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_GUARD_START_H_
