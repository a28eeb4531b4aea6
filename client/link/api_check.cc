#include "client/link/api_check.h"

#include "absl/strings/str_cat.h"
#include "common/base/api_level.h"
#include "common/base/link_fault.h"

namespace gpuctl {

absl::Status CheckApiLevel(const gpuctl::v1::HelloReply& node) {
  // The bridge was delivered from here, and lets nobody through to a server that is older than
  // itself. So this error means that the two programs installed here differ in age.
  if (node.api_level() >= kApiLevel) return absl::OkStatus();
  return WithFault(absl::FailedPreconditionError(
                       absl::StrCat("the agent there is older than this gpuctl (api level ",
                                    node.api_level(), ", ", kApiLevel, " is needed)")),
                   LinkFault::kAgentTooOld);
}

}  // namespace gpuctl
