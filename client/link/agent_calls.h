// The calls of the agent over a link. They are apart from link.h, because few files call, and
// gRPC's headers take the compiler seconds.
#ifndef GPUCTL_CLIENT_LINK_AGENT_CALLS_H_
#define GPUCTL_CLIENT_LINK_AGENT_CALLS_H_

#include <memory>

#include "absl/status/status.h"
#include "gpuctl/v1/agent.grpc.pb.h"

namespace gpuctl {

struct AgentCalls {
  std::unique_ptr<gpuctl::v1::Agent::StubInterface> stub;
};

// Returns gRPC's status as an absl::Status with the same code and the node's ErrorDetail
// (common/transfer/error_detail.h).
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LINK_AGENT_CALLS_H_
