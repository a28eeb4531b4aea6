// Checks that a node's agent has all functions that this program needs.
#ifndef GPUCTL_CLIENT_LINK_API_CHECK_H_
#define GPUCTL_CLIENT_LINK_API_CHECK_H_

#include "absl/status/status.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// Returns FAILED_PRECONDITION with LinkFault::kAgentTooOld when the agent that answered with `node`
// is older than this program. A newer agent is fine: it has to understand older clients.
absl::Status CheckApiLevel(const gpuctl::v1::HelloReply& node);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LINK_API_CHECK_H_
