// Whether a node's agent knows all that this program relies on.
#ifndef GPUCTL_CLIENT_LINK_API_CHECK_H_
#define GPUCTL_CLIENT_LINK_API_CHECK_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// FAILED_PRECONDITION when the agent that answered with `node` is older than this program. One that
// is newer is fine: it has to understand us.
absl::Status CheckApiLevel(const gpuctl::v1::HelloReply& node);

// Whether `status` is of CheckApiLevel.
bool IsAgentTooOld(const absl::Status& status);

// Whether `status` says that an older server hangs on a node and does not end for a newer one.
bool IsServerStuck(const absl::Status& status);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LINK_API_CHECK_H_
