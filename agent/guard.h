// `gpuctl-agent guard`: keeps the server alive and enforces limits. One thread, no gRPC.
#ifndef GPUCTL_AGENT_GUARD_H_
#define GPUCTL_AGENT_GUARD_H_

#include <string>

namespace gpuctl {

struct GuardOptions {
  std::string root;
  std::string bundle_dir;
  // True: start the real guard in a session of its own and return.
  bool detach = false;
  // The inherited descriptor of the lock, set by a guard that replaces itself.
  int lock_fd = -1;
  // The inherited pipe of handover.h, set likewise.
  int handover_fd = -1;
};

// Runs until SIGTERM or `exit` in the control FIFO. As a subreaper it adopts and reaps the shims of
// servers that died. Returns the exit code: 0, also when another guard runs; 1 after printing why.
int RunGuard(const GuardOptions& options);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_GUARD_H_
