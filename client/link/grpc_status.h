// The gRPC channel to a node, and its statuses.
#ifndef GPUCTL_CLIENT_LINK_GRPC_STATUS_H_
#define GPUCTL_CLIENT_LINK_GRPC_STATUS_H_

#include <grpcpp/grpcpp.h>

#include <memory>

#include "absl/status/status.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// Returns gRPC's status as an absl::Status with the same code and the node's ErrorDetail
// (common/transfer/error_detail.h).
absl::Status FromGrpc(const grpc::Status& status);

// Returns a channel over a connected socket. Messages from the node have at most 32 MiB, and none
// is decompressed: agents do not compress, and a small compressed message could take any memory.
std::shared_ptr<grpc::Channel> NodeChannel(UniqueFd fd);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LINK_GRPC_STATUS_H_
