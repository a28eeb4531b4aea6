// The delivered binaries on a node: bin/<digest>/{gpuctl-agent,gpuctl-shim,version,api_level} and
// bin/current. Content-addressed, so an upgrade never overwrites a running binary.
#ifndef GPUCTL_AGENT_BUNDLE_BUNDLE_H_
#define GPUCTL_AGENT_BUNDLE_BUNDLE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// The name of the lock in bin/. A process that changes bin/ holds it.
inline constexpr char kBundleLock[] = ".lock";

// Returns the number in `<dir>/version`; higher is newer. 0 when there is none.
int64_t BundleVersion(const std::string& bundle_dir);

// Returns the bundle's protocol level from `<dir>/api_level`, as its own agent reported it at
// delivery. 1 where there is no such file: the level of agents that did not report one.
int32_t BundleApiLevel(const std::string& bundle_dir);

// True when the bundle in `dir` must replace the one in `other`: its level is higher, or its level
// is the same and it was built later. A build's time alone would let an old build that was copied
// yesterday replace one with a higher level.
bool IsNewerBundle(const std::string& dir, const std::string& other);

// Returns the absolute bundle directory that bin/current names, or "" when there is none.
std::string CurrentBundle(const RootPaths& paths);

// Points bin/current at `bundle_dir` if that is newer than its target, or if there is no target. A
// bundle outside bin/ (a build directory) becomes current only when there is no target. Concurrent
// calls run one after the other, so that the newest bundle stays. Returns true when bin/current
// changed.
absl::StatusOr<bool> AdoptBundle(const RootPaths& paths, const std::string& bundle_dir);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BUNDLE_BUNDLE_H_
