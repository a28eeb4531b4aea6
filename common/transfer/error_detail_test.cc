#include "common/transfer/error_detail.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "common/base/link_fault.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

using gpuctl::v1::ErrorDetail;

ErrorDetail OfKind(ErrorDetail::Kind kind) {
  ErrorDetail detail;
  detail.set_kind(kind);
  return detail;
}

TEST(FromPeer, MakesAFaultOfAKind) {
  const absl::Status said = absl::ResourceExhaustedError("write a: No space left on device");
  EXPECT_EQ(FaultOf(FromPeer(said, OfKind(ErrorDetail::KIND_DISK_FULL))), LinkFault::kPeerDiskFull);
  EXPECT_EQ(FaultOf(FromPeer(said, OfKind(ErrorDetail::KIND_SERVER_STUCK))),
            LinkFault::kServerStuck);
  // An older build sends no kind; a newer one may send an unknown kind.
  EXPECT_EQ(FaultOf(FromPeer(said, ErrorDetail())), LinkFault::kNone);
  EXPECT_EQ(FaultOf(FromPeer(said, OfKind(static_cast<ErrorDetail::Kind>(99)))), LinkFault::kNone);
  EXPECT_EQ(FaultOf(FromPeer(said, OfKind(ErrorDetail::KIND_SWEPT))), LinkFault::kNone);
}

TEST(FromPeer, ItsInternalErrorIsNoBugOfThisProgram) {
  const absl::Status status =
      FromPeer(absl::InternalError("unsupported data flags"), ErrorDetail());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(status.message(), "unsupported data flags");
}

TEST(DetailToSend, TellsAFullDiskAndWhatIsSaidAlready) {
  EXPECT_EQ(DetailToSend(ErrnoStatus(ENOSPC, "copy")).kind(), ErrorDetail::KIND_DISK_FULL);
  ErrorDetail detail = OfKind(ErrorDetail::KIND_SWEPT);
  detail.set_node_id("n-1");
  const ErrorDetail sent = DetailToSend(WithDetail(absl::NotFoundError("gone"), detail));
  EXPECT_EQ(sent.kind(), ErrorDetail::KIND_SWEPT);
  EXPECT_EQ(sent.node_id(), "n-1");
  EXPECT_EQ(DetailToSend(absl::ResourceExhaustedError(strerror(ENOSPC))).ByteSizeLong(), 0u);
}

// A full disk of the other end is not a full disk here, also after the error went back and forth.
TEST(FromPeer, AFullDiskOfThePeersIsNotOurs) {
  EXPECT_FALSE(
      IsDiskFull(FromPeer(absl::ResourceExhaustedError("x"), OfKind(ErrorDetail::KIND_DISK_FULL))));
  EXPECT_EQ(FaultOf(ErrnoStatus(ENOSPC, "write")), LinkFault::kNone);
}

}  // namespace
}  // namespace gpuctl
