// Delivers gpuctl-agent and gpuctl-shim for the node's platform by plain ssh: exec and stdin,
// checked by sha256.
#ifndef GPUCTL_CLIENT_PROGRAMS_BUNDLE_DELIVERY_H_
#define GPUCTL_CLIENT_PROGRAMS_BUNDLE_DELIVERY_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/programs/node_bundle.h"

namespace gpuctl {

// The end of a command on a node.
struct NodeAnswer {
  int exit_code = 0;
  std::string out;
  std::string err;
};
// Runs a command line there with `input` as its stdin, to its end. An error: the connection broke.
using RunOnNode =
    std::function<absl::StatusOr<NodeAnswer>(const std::string& command, absl::string_view input)>;

// Finds out the node's platform and installs the bundle for it unless it is there; one round trip
// when it is. Returns the bundle. Errors: those of PlatformOfUname and NodeBundles::For, with the
// exit code of usage errors: nothing was written to the node then. FAILED_PRECONDITION when the
// node cannot run the bundle, with the node's message and LinkFault::kAgentCannotRun, or
// kNoRoomForAgent when its disk is full. What a failed delivery left on the node is removed with
// one more command.
absl::StatusOr<Bundle> DeliverBundle(const RunOnNode& run, const std::string& root,
                                     NodeBundles& bundles);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_PROGRAMS_BUNDLE_DELIVERY_H_
