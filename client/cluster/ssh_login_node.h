// A cluster's login node, reached by ssh.
#ifndef GPUCTL_CLIENT_CLUSTER_SSH_LOGIN_NODE_H_
#define GPUCTL_CLIENT_CLUSTER_SSH_LOGIN_NODE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/runs/context.h"
#include "provisioning/slurm/login_node.h"

namespace gpuctl {

// Returns the login node that the user names as ssh does: an alias, host, user@host,
// user@host:port. Connects at the first command and keeps the connection for those that follow
// soon. INVALID_ARGUMENT for a name that is none. `context` outlives it.
absl::StatusOr<std::shared_ptr<LoginNode>> MakeSshLoginNode(CommandContext& context,
                                                            const std::string& host);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_CLUSTER_SSH_LOGIN_NODE_H_
