// `gpuctl-agent guard`: keeps the server alive and enforces limits. One thread, no gRPC.
#ifndef GPUCTL_AGENT_GUARD_H_
#define GPUCTL_AGENT_GUARD_H_

#include <string>

namespace gpuctl {

struct GuardOptions {
  std::string root;
  std::string bundle_dir;
  // Start the real guard in a session of its own and return.
  bool detach = false;
  // Set by a guard that replaces itself: the inherited descriptor of its lock.
  int lock_fd = -1;
};

// Runs until `exit` comes through the control FIFO or SIGTERM. As a subreaper it adopts and reaps
// the shims of servers that died. Returns the exit code: 0, also when another guard is running; 1
// after saying why not.
int RunGuard(const GuardOptions& options);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_GUARD_H_
