#include "client/link/agent_calls.h"

#include <grpc/support/log.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/version_info.h>

// gRPC logs through Abseil since 1.65.
#define GPUCTL_GRPC_LOGS_THROUGH_ABSEIL \
  (GRPC_CPP_VERSION_MAJOR * 100 + GRPC_CPP_VERSION_MINOR >= 165)
#if GPUCTL_GRPC_LOGS_THROUGH_ABSEIL
#include "absl/log/globals.h"
#endif

#include "absl/strings/escaping.h"
#include "common/base/log.h"
#include "common/transfer/error_detail.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {
namespace {

// gRPC's own log has bytes of the peer, which could act on a terminal. All its errors but a failed
// assertion come as a status as well.
#if GPUCTL_GRPC_LOGS_THROUGH_ABSEIL
void QuietGrpc() { absl::SetMinLogLevel(absl::LogSeverityAtLeast::kFatal); }
#else
void LogOfGrpc(gpr_log_func_args* line) {
  if (absl::string_view(line->message).find("assertion failed") != 0) return;
  Log(LogLevel::kError, absl::CHexEscape(line->message));
}
void QuietGrpc() {
  gpr_set_log_function(LogOfGrpc);
#if GOOGLE_PROTOBUF_VERSION < 4022000
  // Protobuf prints a line about text that is not UTF-8; newer ones log with Abseil.
  google::protobuf::SetLogHandler(nullptr);
#endif
}
#endif

}  // namespace

absl::Status FromGrpc(const grpc::Status& status) {
  gpuctl::v1::ErrorDetail detail;
  if (!detail.ParseFromString(status.error_details())) detail.Clear();
  return FromPeer(
      absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message()),
      detail);
}

std::shared_ptr<grpc::Channel> NodeChannel(UniqueFd fd) {
  QuietGrpc();
  grpc::ChannelArguments arguments;
  // A list of 100,000 files with long names has about 20 MiB.
  arguments.SetMaxReceiveMessageSize(32 << 20);
  arguments.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  arguments.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1);  // only uncompressed
  return grpc::CreateCustomInsecureChannelFromFd("node", fd.release(), arguments);
}

}  // namespace gpuctl
