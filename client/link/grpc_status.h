// gRPC's statuses in our own terms.
#ifndef GPUCTL_CLIENT_LINK_GRPC_STATUS_H_
#define GPUCTL_CLIENT_LINK_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace gpuctl {

// Returns a status of gRPC's as one of ours: the codes are the same, and the node's ErrorDetail
// comes with it (common/transfer/error_detail.h).
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LINK_GRPC_STATUS_H_
