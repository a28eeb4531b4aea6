// Delivers gpuctl-agent and gpuctl-shim for the node's platform by plain ssh: exec and stdin,
// checked by sha256.
#ifndef GPUCTL_CLIENT_LINK_BUNDLE_DELIVERY_H_
#define GPUCTL_CLIENT_LINK_BUNDLE_DELIVERY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/link/ssh_session.h"
#include "client/programs/node_bundle.h"

namespace gpuctl {

// Finds out the node's platform and installs the bundle for it unless it is there; one round trip
// when it is. Returns the bundle. Errors: those of PlatformOfUname and NodeBundles::For, with the
// exit code of usage errors: nothing was written to the node then. FAILED_PRECONDITION when the
// node cannot run the bundle, with the node's message and LinkFault::kAgentCannotRun, or
// kNoRoomForAgent when its disk is full. What a failed delivery left on the node is removed in the
// same session.
absl::StatusOr<Bundle> DeliverBundle(SshSession& session, const std::string& root,
                                     NodeBundles& bundles);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LINK_BUNDLE_DELIVERY_H_
