#include "client/link/agent_calls.h"

#include "common/transfer/error_detail.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

absl::Status FromGrpc(const grpc::Status& status) {
  gpuctl::v1::ErrorDetail detail;
  if (!detail.ParseFromString(status.error_details())) detail.Clear();
  return FromPeer(
      absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message()),
      detail);
}

}  // namespace gpuctl
