// OpenSSH's way into an allocation: its node has no port for us, so a step serves each connection
// (`gpuctl-agent serve-ssh`). Both keys are this laptop's own, and serve nowhere else.
#ifndef GPUCTL_CLIENT_CLUSTER_ALLOCATION_SSH_H_
#define GPUCTL_CLIENT_CLUSTER_ALLOCATION_SSH_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/base/node_target.h"

namespace gpuctl {

// True when the target is an allocation, as the list of runs has it.
bool IsAllocationTarget(const NodeTarget& target);

struct AllocationSsh {
  std::string identity_file;  // the private key that may log in
  std::string known_hosts;    // a file of OpenSSH with the server's key, under `host_key_alias`
  std::string host_key_alias;
  // What the agent must read before the connection's first byte: it has the server's private key.
  std::string preface;
};

// Makes the keys and files below `state_dir` unless they are there.
absl::StatusOr<AllocationSsh> PrepareAllocationSsh(const std::string& state_dir);

// Returns the script (POSIX sh) of a step that serves one connection.
std::string ServeSshScript();
// Returns the script of a step that exits with 0 when the other one can work, and with kNoSshd when
// the node has no sshd.
std::string TrySshScript();
inline constexpr int kNoSshd = 73;

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_CLUSTER_ALLOCATION_SSH_H_
