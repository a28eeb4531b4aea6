// Errors of a node, with its name and the hint that helps.
#ifndef GPUCTL_CLIENT_NODE_EXPLAIN_ERROR_H_
#define GPUCTL_CLIENT_NODE_EXPLAIN_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "client/base/node_target.h"

namespace gpuctl {

// Returns `status` of something done on `target` or sent to it. Where its fault is that the node's
// disk is full, with the node's name and the hint that helps; unchanged otherwise.
absl::Status ExplainFullNode(const absl::Status& status, const NodeTarget& target);

// Returns `status` of a failed attempt to reach `target`, with the hint that fits its fault
// (common/base/link_fault.h), or else its code.
absl::Status ExplainLinkError(const absl::Status& status, const NodeTarget& target);

// "ssh -p 22 ada@gpu.example"; with USER@HOST where a market gave names that nobody should type.
std::string LoginCommand(const NodeTarget& target);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_NODE_EXPLAIN_ERROR_H_
