#include "client/link/agent_calls.h"

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/support/channel_arguments.h>

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

std::shared_ptr<grpc::Channel> NodeChannel(UniqueFd fd) {
  grpc::ChannelArguments arguments;
  // A list of 100,000 files with long names has about 20 MiB.
  arguments.SetMaxReceiveMessageSize(32 << 20);
  arguments.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  arguments.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1);  // only uncompressed
  return grpc::CreateCustomInsecureChannelFromFd("node", fd.release(), arguments);
}

}  // namespace gpuctl
