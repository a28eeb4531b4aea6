// Names and addresses of market instances as nodes.
#ifndef GPUCTL_CLIENT_MARKET_INSTANCE_TARGET_H_
#define GPUCTL_CLIENT_MARKET_INSTANCE_TARGET_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/base/node_target.h"
#include "client/runs/context.h"
#include "provisioning/ledger/lease.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// Returns the name of an instance's target: "runpod/8fj2k1". Host keys are pinned under it.
std::string RentedNodeName(absl::string_view provider, absl::string_view instance_id);

// Returns the target of the lease's instance, with gpuctl's own key and the host key that the
// machine got. `address` must be complete.
absl::StatusOr<NodeTarget> TargetOfInstance(CommandContext& context, const Lease& lease,
                                            const SshAddress& address);

// Returns the fingerprint of the host key that the lease's machine got; "" for none.
std::string GivenHostKey(const Lease& lease);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_MARKET_INSTANCE_TARGET_H_
