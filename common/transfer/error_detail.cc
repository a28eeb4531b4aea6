#include "common/transfer/error_detail.h"

#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "common/base/link_fault.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

using gpuctl::v1::ErrorDetail;

constexpr char kDetailPayload[] = "type.googleapis.com/gpuctl.v1.ErrorDetail";

}  // namespace

absl::Status WithDetail(absl::Status status, const ErrorDetail& detail) {
  if (!status.ok()) status.SetPayload(kDetailPayload, absl::Cord(detail.SerializeAsString()));
  return status;
}

ErrorDetail DetailOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kDetailPayload);
  ErrorDetail detail;
  if (payload.has_value() && !detail.ParseFromString(std::string(*payload))) detail.Clear();
  return detail;
}

ErrorDetail DetailToSend(const absl::Status& status) {
  ErrorDetail detail = DetailOf(status);
  if (detail.kind() == ErrorDetail::KIND_UNSPECIFIED && IsDiskFull(status)) {
    detail.set_kind(ErrorDetail::KIND_DISK_FULL);
  }
  return detail;
}

absl::Status FromPeer(absl::Status status, const ErrorDetail& detail) {
  // INTERNAL means a bug of this program, and a broken stream is not one.
  if (absl::IsInternal(status)) status = absl::UnknownError(status.message());
  if (detail.kind() == ErrorDetail::KIND_UNSPECIFIED) return status;
  status = WithDetail(std::move(status), detail);
  switch (detail.kind()) {
    case ErrorDetail::KIND_DISK_FULL:
      return WithFault(std::move(status), LinkFault::kPeerDiskFull);
    case ErrorDetail::KIND_SERVER_STUCK:
      return WithFault(std::move(status), LinkFault::kServerStuck);
    default:
      return status;
  }
}

absl::Status DetailedError(absl::StatusCode code, const std::string& message,
                           gpuctl::v1::ErrorDetail::Kind kind, const std::string& node_id) {
  gpuctl::v1::ErrorDetail detail;
  detail.set_kind(kind);
  detail.set_node_id(node_id);
  return WithDetail(absl::Status(code, message), detail);
}

}  // namespace gpuctl
