#include "client/link/agent_calls.h"

#include <grpc/support/log.h>
#include <grpcpp/version_info.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <string>

#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/transfer/error_detail.h"

namespace gpuctl {
namespace {

using gpuctl::v1::ErrorDetail;

TEST(FromGrpc, TheNodesFullDiskComesWithTheKindThatItSent) {
  const absl::Status there = ErrnoStatus(ENOSPC, "copy a");
  const std::string message(there.message());
  const absl::Status heard = FromGrpc(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, message,
                                                   DetailToSend(there).SerializeAsString()));
  EXPECT_EQ(heard.code(), there.code());
  EXPECT_EQ(heard.message(), message);
  EXPECT_EQ(FaultOf(heard), LinkFault::kPeerDiskFull);
  // A node may send no kind, or bytes that are none; the message is the same.
  for (const char* bytes : {"", "\xff\xff", "\x08"}) {
    const absl::Status plain =
        FromGrpc(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, message, bytes));
    EXPECT_EQ(FaultOf(plain), LinkFault::kNone);
    EXPECT_EQ(plain.message(), message);
  }
  EXPECT_TRUE(FromGrpc(grpc::Status::OK).ok());
}

TEST(FromGrpc, KeepsTheDetailForWhoDecidesByIt) {
  ErrorDetail detail;
  detail.set_kind(ErrorDetail::KIND_CONTENT_MISSING);
  detail.set_node_id("n-1");
  const absl::Status status = FromGrpc(
      grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "m", detail.SerializeAsString()));
  EXPECT_EQ(DetailOf(status).kind(), ErrorDetail::KIND_CONTENT_MISSING);
  EXPECT_EQ(DetailOf(status).node_id(), "n-1");
  EXPECT_EQ(FaultOf(status), LinkFault::kNone);
}

TEST(NodeChannel, TheLogOfGrpcStaysAwayFromTheTerminal) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  const UniqueFd node(fds[1]);
  ::testing::internal::CaptureStderr();
  const std::shared_ptr<grpc::Channel> channel = NodeChannel(UniqueFd(fds[0]));
  const char* line = "invalid value \x1b]52;c;cm0gLXJm\a";
#if GRPC_CPP_VERSION_MAJOR * 100 + GRPC_CPP_VERSION_MINOR >= 165
  grpc_absl_log(GPR_ERROR, line);
#else
  gpr_log(GPR_ERROR, "%s", line);
#endif
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace gpuctl
