// Delivers gpuctl-agent and gpuctl-shim to a node by plain ssh: exec and stdin, checked by sha256.
#ifndef GPUCTL_CLIENT_LINK_BUNDLE_DELIVERY_H_
#define GPUCTL_CLIENT_LINK_BUNDLE_DELIVERY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/link/ssh_session.h"

namespace gpuctl {

struct Bundle {
  std::string agent_path;
  std::string shim_path;
  std::string agent_sha256;
  std::string shim_sha256;
  // Root certificates that the node may trust; "" when the laptop has none beside the agent.
  std::string roots_path;
  std::string roots_sha256;
  std::string digest;   // names the directory on the node
  int64_t version = 0;  // time of the newer file, Unix seconds: a later build replaces an older
};

// Reads the two files. Caches their hashes in `cache_file` by path, inode, size and times.
absl::StatusOr<Bundle> DescribeBundle(const std::string& agent_path, const std::string& shim_path,
                                      const std::string& cache_file);

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
