#include "client/link/api_check.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/api_level.h"

namespace gpuctl {
namespace {

constexpr char kOlder[] = "the agent there is older than this gpuctl";
// The bridge's words: agent/bridge.cc.
constexpr char kStuck[] = "has not made way for the new one";

}  // namespace

absl::Status CheckApiLevel(const gpuctl::v1::HelloReply& node) {
  // The bridge lets nobody through to a server that is older than itself, and it is what was
  // delivered from here. So this is about the two programs that were installed here.
  if (node.api_level() >= kApiLevel) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(kOlder, " (api level ", node.api_level(), ", ", kApiLevel, " is needed)"));
}

bool IsAgentTooOld(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) && absl::StrContains(status.message(), kOlder);
}

bool IsServerStuck(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) && absl::StrContains(status.message(), kStuck);
}

}  // namespace gpuctl
