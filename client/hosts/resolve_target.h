// Finds the node that the user names.
#ifndef GPUCTL_CLIENT_HOSTS_RESOLVE_TARGET_H_
#define GPUCTL_CLIENT_HOSTS_RESOLVE_TARGET_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/base/node_target.h"

namespace gpuctl {

struct TargetFlags {
  std::string provider;  // "local", "ssh" or ""
  std::string host;      // as for ssh: an alias, host, user@host, user@host:port
  int port = 0;
  std::string identity;  // private key file
};

// Returns the machine that the flags name, or this machine when they name none. `ssh -G` resolves
// aliases. GPUCTL_NODE_ROOT moves the node's root (~/.gpuctl). INVALID_ARGUMENT for flags that do
// not go together.
absl::StatusOr<NodeTarget> ResolveTarget(const TargetFlags& flags);

// Replaces %h, %p, %r and %% in a ProxyCommand. Pure.
std::string ExpandProxyCommand(const std::string& command, const NodeTarget& target);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_HOSTS_RESOLVE_TARGET_H_
