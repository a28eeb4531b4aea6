// An allocation of a cluster's scheduler, as a node: each command for it is a step that the login
// node starts inside the allocation.
#ifndef GPUCTL_CLIENT_CLUSTER_ALLOCATION_H_
#define GPUCTL_CLIENT_CLUSTER_ALLOCATION_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/base/node_target.h"

namespace gpuctl {

// Returns the target for links to the allocation `rented`, whose name is "slurm/<job>" and whose
// address is the login node's as the user named it. INVALID_ARGUMENT for another name.
absl::StatusOr<NodeTarget> TargetOfAllocation(const NodeTarget& rented);

// Returns the target for links to what was kept of the allocation, on its login node. `allocation`
// is what TargetOfAllocation returned, `archive` the word of ResultsWord.
NodeTarget TargetOfArchive(const NodeTarget& allocation, const std::string& archive);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_CLUSTER_ALLOCATION_H_
