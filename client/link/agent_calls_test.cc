#include "client/link/agent_calls.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
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

}  // namespace
}  // namespace gpuctl
