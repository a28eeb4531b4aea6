// The delivered binaries on a node: bin/<digest>/{gpuctl-agent,gpuctl-shim,version} and
// bin/current. Content-addressed, so an upgrade never overwrites a running binary.
#ifndef GPUCTL_AGENT_BUNDLE_H_
#define GPUCTL_AGENT_BUNDLE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/job_layout.h"

namespace gpuctl {

// The number in `<dir>/version`; higher is newer. 0 when there is none.
int64_t BundleVersion(const std::string& bundle_dir);

// The bundle directory that bin/current names, absolute, or "" when there is none.
std::string CurrentBundle(const RootPaths& paths);

// Points bin/current at `bundle_dir` if that is newer than what it points at, or if there is
// nothing. A bundle outside bin/ (a build directory) becomes current only when there is nothing.
// Returns whether it changed.
absl::StatusOr<bool> AdoptBundle(const RootPaths& paths, const std::string& bundle_dir);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BUNDLE_H_
