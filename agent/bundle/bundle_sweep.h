// Removing delivered bundles that nothing needs any more.
#ifndef GPUCTL_AGENT_BUNDLE_BUNDLE_SWEEP_H_
#define GPUCTL_AGENT_BUNDLE_BUNDLE_SWEEP_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// Removes old bundles from bin/ and interrupted deliveries. Returns the removed names. It keeps
// bin/current, the newest of the others, bundles that a living process runs from or names in its
// command line (an emulated program shows no more), and bundles delivered or used in the last day
// (a laptop with an older build may still use them; it would deliver them again). Removes nothing
// where processes cannot be listed.
absl::StatusOr<std::vector<std::string>> SweepBundles(const RootPaths& paths, Clock& clock);

// Records that the bundle in `bundle_dir` is used now.
void NoteBundleUse(const std::string& bundle_dir);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BUNDLE_BUNDLE_SWEEP_H_
