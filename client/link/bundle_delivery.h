// Delivers gpuctl-agent and gpuctl-shim to a node by plain ssh: exec and stdin, checked by sha256.
#ifndef GPUCTL_CLIENT_LINK_BUNDLE_DELIVERY_H_
#define GPUCTL_CLIENT_LINK_BUNDLE_DELIVERY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/base/node_bundle.h"
#include "client/link/ssh_session.h"

namespace gpuctl {

// Returns the node's root as a shell word: `root` quoted, or "$HOME/.gpuctl" when it is empty.
std::string RootWord(const std::string& root);

// Returns a script (POSIX sh, and `test -O`) that becomes the bundle's agent with `arguments`,
// words of the shell, and the root. It exits with 126, and runs nothing, when the root, the bundle
// or a program in it belongs to another user; with 127 when there is no agent.
std::string AgentScript(const std::string& root, const Bundle& bundle, absl::string_view arguments);

// Returns a command line that runs `script` (POSIX sh) and that any login shell passes on
// unchanged.
std::string ShellCommand(const std::string& script);

// Installs the bundle on the node unless it is there. FAILED_PRECONDITION when the node cannot run
// it, with the node's message and LinkFault::kAgentCannotRun, or kNoRoomForAgent when its disk is
// full.
absl::Status DeliverBundle(SshSession& session, const std::string& root, const Bundle& bundle);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LINK_BUNDLE_DELIVERY_H_
