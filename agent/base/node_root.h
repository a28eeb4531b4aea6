// The node's root directory: made once, private, on a local disk, with an identity.
#ifndef GPUCTL_AGENT_BASE_NODE_ROOT_H_
#define GPUCTL_AGENT_BASE_NODE_ROOT_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// Creates what is missing under `root` (0700) and returns its paths. FAILED_PRECONDITION on a
// network file system, where locks and FIFOs cannot be relied on, and for a root that others may
// enter.
absl::StatusOr<RootPaths> PrepareNodeRoot(const std::string& root);

// The node's random identity, made by whoever asks first; concurrent callers get the same one.
absl::StatusOr<std::string> NodeId(const RootPaths& paths);

// Names the file system type when `path` lies on a network file system, else "".
std::string NetworkFileSystem(const std::string& path);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_NODE_ROOT_H_
