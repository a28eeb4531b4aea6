#include "client/base/exit_codes.h"

#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gpuctl {
namespace {

constexpr char kHintPayload[] = "gpuctl/hint";
constexpr char kExitCodePayload[] = "gpuctl/exit_code";
constexpr char kCausePayload[] = "gpuctl/cause";
constexpr char kExcerptPayload[] = "gpuctl/excerpt";

std::string PayloadOf(const absl::Status& status, const char* name) {
  const absl::optional<absl::Cord> payload = status.GetPayload(name);
  return payload.has_value() ? std::string(*payload) : "";
}

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

std::string HintOf(const absl::Status& status) { return PayloadOf(status, kHintPayload); }

absl::Status WithExitCode(absl::Status status, ExitCode code) {
  if (!status.ok()) {
    status.SetPayload(kExitCodePayload, absl::Cord(absl::StrCat(static_cast<int>(code))));
  }
  return status;
}

ExitCode ExitCodeOf(const absl::Status& status) {
  int code = 0;
  if (absl::SimpleAtoi(PayloadOf(status, kExitCodePayload), &code)) {
    return static_cast<ExitCode>(code);
  }
  return ImpliedExitCode(status.code());
}

absl::Status WithCause(absl::Status status, absl::string_view cause) {
  if (!status.ok() && !cause.empty()) status.SetPayload(kCausePayload, absl::Cord(cause));
  return status;
}

std::string CauseOf(const absl::Status& status) { return PayloadOf(status, kCausePayload); }

absl::Status WithExcerpt(absl::Status status, const Excerpt& excerpt) {
  if (!status.ok()) {
    status.SetPayload(kExcerptPayload, absl::Cord(absl::StrCat(excerpt.line, " ", excerpt.column,
                                                               " ", excerpt.text)));
  }
  return status;
}

std::optional<Excerpt> ExcerptOf(const absl::Status& status) {
  const std::string payload = PayloadOf(status, kExcerptPayload);
  const std::vector<std::string> parts = absl::StrSplit(payload, absl::MaxSplits(' ', 2));
  Excerpt excerpt;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &excerpt.line) ||
      !absl::SimpleAtoi(parts[1], &excerpt.column)) {
    return std::nullopt;
  }
  excerpt.text = parts[2];
  return excerpt;
}

absl::Status UsageError(absl::string_view message, absl::string_view hint) {
  return WithHint(absl::InvalidArgumentError(message), hint);
}

}  // namespace gpuctl
