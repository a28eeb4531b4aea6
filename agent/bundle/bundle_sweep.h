// Removing delivered bundles that nothing needs any more.
#ifndef GPUCTL_AGENT_BUNDLE_BUNDLE_SWEEP_H_
#define GPUCTL_AGENT_BUNDLE_BUNDLE_SWEEP_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// Removes bundles of bin/ and deliveries that broke off, and returns the names of what it removed.
// There stay: bin/current, the newest of the others, what a living process runs from, what was
// delivered or used in the last day (a laptop with an older build may be about to use it; it would
// deliver it again). Where processes cannot be looked at nothing is removed.
absl::StatusOr<std::vector<std::string>> SweepBundles(const RootPaths& paths, Clock& clock);

// Notes that the bundle in `bundle_dir` is used now.
void NoteBundleUse(const std::string& bundle_dir);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BUNDLE_BUNDLE_SWEEP_H_
