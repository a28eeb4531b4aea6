#include "common/base/status_macros.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

constexpr char kDiskFullPayload[] = "gpuctl/disk_full";

}  // namespace

absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload([&annotated](absl::string_view url, const absl::Cord& payload) {
    annotated.SetPayload(url, payload);
  });
  return annotated;
}

absl::Status ErrnoStatus(int error_number, absl::string_view context) {
  absl::StatusCode code = absl::StatusCode::kUnknown;
  switch (error_number) {
    case ENOENT:
      code = absl::StatusCode::kNotFound;
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      // PERMISSION_DENIED is kept for the other side, which refuses keys and hosts.
      code = absl::StatusCode::kFailedPrecondition;
      break;
    case EEXIST:
      code = absl::StatusCode::kAlreadyExists;
      break;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      code = absl::StatusCode::kResourceExhausted;
      break;
    case EINVAL:
    case ENAMETOOLONG:
    case ENOTDIR:
    case EISDIR:
      code = absl::StatusCode::kInvalidArgument;
      break;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case EHOSTUNREACH:
    case ENETUNREACH:
      code = absl::StatusCode::kUnavailable;
      break;
    case ETIMEDOUT:
      code = absl::StatusCode::kDeadlineExceeded;
      break;
    default:
      break;
  }
  absl::Status status(code, absl::StrCat(context, ": ", std::strerror(error_number)));
  if (error_number == ENOSPC || error_number == EDQUOT) {
    status.SetPayload(kDiskFullPayload, absl::Cord("1"));
  }
  return status;
}

bool IsDiskFull(const absl::Status& status) {
  return status.GetPayload(kDiskFullPayload).has_value();
}

}  // namespace gpuctl
