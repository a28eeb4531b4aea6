// The calls of the agent over a link. They are apart from link.h, because few files call, and
// gRPC's headers take the compiler seconds.
#ifndef GPUCTL_CLIENT_LINK_AGENT_CALLS_H_
#define GPUCTL_CLIENT_LINK_AGENT_CALLS_H_

#include <memory>

#include "absl/status/status.h"
#include "common/base/unique_fd.h"
#include "gpuctl/v1/agent.grpc.pb.h"

namespace gpuctl {

struct AgentCalls {
  std::unique_ptr<gpuctl::v1::Agent::StubInterface> stub;
};

// Returns gRPC's status as an absl::Status with the same code and the node's ErrorDetail
// (common/transfer/error_detail.h).
absl::Status FromGrpc(const grpc::Status& status);

// Returns a channel over a connected socket. Messages from the node have at most 32 MiB, and none
// is decompressed: agents do not compress, and a small compressed message could take any memory.
std::shared_ptr<grpc::Channel> NodeChannel(UniqueFd fd);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LINK_AGENT_CALLS_H_
