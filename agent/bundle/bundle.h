// The delivered binaries on a node: bin/<digest>/{gpuctl-agent,gpuctl-shim,version,api_level} and
// bin/current. Content-addressed, so an upgrade never overwrites a running binary.
#ifndef GPUCTL_AGENT_BUNDLE_BUNDLE_H_
#define GPUCTL_AGENT_BUNDLE_BUNDLE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// In bin/: held by whoever changes what lies there.
inline constexpr char kBundleLock[] = ".lock";

// The number in `<dir>/version`; higher is newer. 0 when there is none.
int64_t BundleVersion(const std::string& bundle_dir);

// The level of the protocol that the bundle speaks, as its own agent said when it was delivered:
// `<dir>/api_level`. 1 where there is none, for that is what agents spoke before they said it.
int32_t BundleApiLevel(const std::string& bundle_dir);

// Whether the bundle in `dir` is to displace the one in `other`: it speaks a higher level, or the
// same and was built later. A build's time alone would let an old build that was copied yesterday
// displace one that knows more.
bool IsNewerBundle(const std::string& dir, const std::string& other);

// The bundle directory that bin/current names, absolute, or "" when there is none.
std::string CurrentBundle(const RootPaths& paths);

// Points bin/current at `bundle_dir` if that is newer than what it points at, or if there is
// nothing. A bundle outside bin/ (a build directory) becomes current only when there is nothing.
// Two that do this at once do it one after the other, so that the newer one stays. Returns whether
// it changed.
absl::StatusOr<bool> AdoptBundle(const RootPaths& paths, const std::string& bundle_dir);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BUNDLE_BUNDLE_H_
