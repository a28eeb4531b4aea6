// Starting an attempt: all steps between the command line and the poll loop.
#ifndef GPUCTL_AGENT_SHIM_ATTEMPT_H_
#define GPUCTL_AGENT_SHIM_ATTEMPT_H_

#include <string>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/job/lifecycle.h"

namespace gpuctl {

// The exit codes of gpuctl-shim.
enum ShimExit : int {
  kShimDone = 0,  // the attempt ran and its end is in lifecycle
  kShimUsage = 64,
  kShimBug = 70,
  kShimLockHeld = 100,    // another shim owns the job
  kShimNoSecrets = 101,   // stdin ended before the commit byte
  kShimRefused = 102,     // lifecycle does not allow this attempt
  kShimNotStarted = 103,  // a file, descriptor or process failed, see shim.stderr; nothing started
};

// Returns OK when `attempt` may start after the lifecycle `past`: attempt 1 of a job without a
// state event, or the attempt named by the last state event, a retry. FAILED_PRECONDITION
// otherwise.
absl::Status CheckAttempt(const Lifecycle& past, int attempt);

// Reads secrets from `secrets_fd`, takes the job's lock and runs the attempt to its end. Returns
// the process's exit code; reasons go to stderr.
int RunAttempt(const std::string& job_dir, int attempt, int secrets_fd, Clock& clock);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SHIM_ATTEMPT_H_
