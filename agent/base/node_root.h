// The node's root directory: private, on a local disk, with an identity. It is made once.
#ifndef GPUCTL_AGENT_BASE_NODE_ROOT_H_
#define GPUCTL_AGENT_BASE_NODE_ROOT_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// Creates the missing directories of `root` (0700) and returns its paths. FAILED_PRECONDITION on a
// network file system, where locks and FIFOs are not reliable, for a root that other users may
// enter, and for the place of an allocation's root (gpuctl-UID/…) that its batch script does not
// hold or no longer holds: what is started there would outlive the allocation on some clusters.
absl::StatusOr<RootPaths> PrepareNodeRoot(const std::string& root);

// Returns the node's random identity. The first caller makes it; concurrent callers get the same
// one.
absl::StatusOr<std::string> NodeId(const RootPaths& paths);

// Returns the file system's type when `path` is on a network file system, else "". One that a
// program serves (FUSE) counts, because its locks may end with that program.
std::string NetworkFileSystem(const std::string& path);

// Returns the type of the network file system that is device `major`:`minor` in the text of
// /proc/self/mountinfo (proc(5)); "" for any other file system, nothing when it has no such device.
std::optional<std::string> NetworkTypeInMounts(absl::string_view mountinfo, unsigned major,
                                               unsigned minor);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_NODE_ROOT_H_
