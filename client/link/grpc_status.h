// Converts gRPC's statuses.
#ifndef GPUCTL_CLIENT_LINK_GRPC_STATUS_H_
#define GPUCTL_CLIENT_LINK_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace gpuctl {

// Returns gRPC's status as an absl::Status with the same code and the node's ErrorDetail
// (common/transfer/error_detail.h).
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LINK_GRPC_STATUS_H_
