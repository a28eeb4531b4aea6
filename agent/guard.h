// `gpuctl-agent guard`: keeps the server alive and enforces limits. One thread, no gRPC.
#ifndef GPUCTL_AGENT_GUARD_H_
#define GPUCTL_AGENT_GUARD_H_

#include <cstdint>
#include <limits>
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
  // True for `gpuctl-agent hold`: the guard of a Slurm allocation's root (agent/base/held_root.h),
  // which the allocation's batch script runs.
  bool hold = false;
  // For `hold`: begin with the end of all jobs.
  bool end = false;
  // For `hold`: the seconds since the system's start after which it ends when the root has neither
  // limits nor a job.
  int64_t claim_until_s = std::numeric_limits<int64_t>::max();
};

// Runs until SIGTERM or `exit` in the control FIFO. As a subreaper it adopts and reaps the shims of
// servers that died. Returns the exit code: 0, also when another guard runs; 1 after printing why,
// and in a held root.
//
// With `hold` it runs in a held root only. Its end is that of the allocation: jobs are stopped with
// kAllocationEndsReason, have $GPUCTL_HOLD_GRACE_S seconds (default 30), or their own grace where
// that is shorter, and are then killed; nothing of the root is left running. That comes with
// SIGTERM, `exit`, the file kReleasedFile, the removal of the root, and `claim_until_s`. It comes
// with at most 5 seconds of grace when the batch script is gone. Where $GPUCTL_RESULTS names a
// directory, a process of its own keeps results there (agent/hold/keep_results.h), and has a minute
// after the jobs' end, as long as the batch script lives. Returns 0 only after such an end:
// after another exit code the batch script starts it again.
int RunGuard(const GuardOptions& options);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_GUARD_H_
