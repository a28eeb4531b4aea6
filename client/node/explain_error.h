// Adds a node's name and a hint to its errors.
#ifndef GPUCTL_CLIENT_NODE_EXPLAIN_ERROR_H_
#define GPUCTL_CLIENT_NODE_EXPLAIN_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "client/base/node_target.h"

namespace gpuctl {

// Returns `status` of an action on `target`. Adds the node's name and a hint when the fault is the
// node's full disk; else returns it unchanged.
absl::Status ExplainFullNode(const absl::Status& status, const NodeTarget& target);

// Does so for a node that refused to start a job, also because it has too few GPUs: that has the
// exit code of missing capacity.
absl::Status ExplainRefusedJob(const absl::Status& status, const NodeTarget& target);

// Returns `status` of a failed attempt to reach `target`, with a hint for its fault
// (common/base/link_fault.h), or else for its code.
absl::Status ExplainLinkError(const absl::Status& status, const NodeTarget& target);

// Returns "ssh -p 22 ada@gpu.example"; with USER@HOST when a market gave names that are not safe to
// type.
std::string LoginCommand(const NodeTarget& target);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_NODE_EXPLAIN_ERROR_H_
