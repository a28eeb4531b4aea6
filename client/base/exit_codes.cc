#include "client/base/exit_codes.h"

#include <optional>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

constexpr char kHintPayload[] = "gpuctl/hint";
constexpr char kExitCodePayload[] = "gpuctl/exit_code";

ExitCode ImpliedExitCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kUnavailable:
      return kExitUnreachable;
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return kExitCredentials;
    case absl::StatusCode::kDeadlineExceeded:
      return kExitTimeout;
    case absl::StatusCode::kDataLoss:
      return kExitIntegrity;
    case absl::StatusCode::kInternal:
      return kExitBug;
    default:
      return kExitFailed;
  }
}

}  // namespace

absl::Status WithHint(absl::Status status, absl::string_view hint) {
  if (!status.ok() && !hint.empty() && !status.GetPayload(kHintPayload).has_value()) {
    status.SetPayload(kHintPayload, absl::Cord(hint));
  }
  return status;
}

std::string HintOf(const absl::Status& status) {
  const absl::optional<absl::Cord> hint = status.GetPayload(kHintPayload);
  return hint.has_value() ? std::string(*hint) : "";
}

absl::Status WithExitCode(absl::Status status, ExitCode code) {
  if (!status.ok()) {
    status.SetPayload(kExitCodePayload, absl::Cord(absl::StrCat(static_cast<int>(code))));
  }
  return status;
}

ExitCode ExitCodeOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kExitCodePayload);
  int code = 0;
  if (payload.has_value() && absl::SimpleAtoi(std::string(*payload), &code)) {
    return static_cast<ExitCode>(code);
  }
  return ImpliedExitCode(status.code());
}

absl::Status UsageError(absl::string_view message, absl::string_view hint) {
  return WithHint(absl::InvalidArgumentError(message), hint);
}

}  // namespace gpuctl
