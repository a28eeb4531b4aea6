// Starting an attempt: everything between the command line and the poll loop.
#ifndef GPUCTL_AGENT_SHIM_ATTEMPT_H_
#define GPUCTL_AGENT_SHIM_ATTEMPT_H_

#include <string>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/job/lifecycle.h"

namespace gpuctl {

// What gpuctl-shim exits with.
enum ShimExit : int {
  kShimDone = 0,  // the attempt ran, its end is in lifecycle
  kShimUsage = 64,
  kShimBug = 70,
  kShimLockHeld = 100,    // another shim owns the job
  kShimNoSecrets = 101,   // stdin ended before the commit byte
  kShimRefused = 102,     // lifecycle does not want this attempt
  kShimNotStarted = 103,  // a file, a descriptor, a process: see shim.stderr; nothing was started
};

// OK when `attempt` may start after what `past` tells: attempt 1 of a job with no state event, or
// the attempt that the last state event, a retry, names. FAILED_PRECONDITION otherwise.
absl::Status CheckAttempt(const Lifecycle& past, int attempt);

// Reads secrets from `secrets_fd`, takes the job's lock, runs the attempt to its end. Returns what
// the process exits with; reasons go to stderr.
int RunAttempt(const std::string& job_dir, int attempt, int secrets_fd, Clock& clock);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SHIM_ATTEMPT_H_
