// An allocation of a cluster's scheduler, as a node: each command for it is a step that the login
// node starts inside the allocation.
#ifndef GPUCTL_CLIENT_CLUSTER_ALLOCATION_H_
#define GPUCTL_CLIENT_CLUSTER_ALLOCATION_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/base/node_target.h"

namespace gpuctl {

// What the name of a node of an allocation says: "slurm/<job>", or "slurm/<job>.<node>" for those
// after the first.
struct AllocationName {
  std::string job;
  int node = 0;
};
// Returns nothing for another name.
std::optional<AllocationName> ParseAllocationName(absl::string_view name);

// Returns the market's id of a rented machine, without the market's name; of a node of an
// allocation, that of the allocation.
std::string InstanceIdOf(const NodeTarget& rented);

// Returns node `node` of the allocation whose first node is `first`.
NodeTarget NodeOfAllocation(const NodeTarget& first, int node);

// Returns the target for links to the node `rented` of an allocation, whose address is the login
// node's as the user named it. INVALID_ARGUMENT where its name is none of an allocation.
absl::StatusOr<NodeTarget> TargetOfAllocation(const NodeTarget& rented);

// Returns the target for links to what was kept of the allocation, on its login node. `allocation`
// is what TargetOfAllocation returned, `archive` the word of ResultsWord.
NodeTarget TargetOfArchive(const NodeTarget& allocation, const std::string& archive);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_CLUSTER_ALLOCATION_H_
