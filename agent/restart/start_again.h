// `gpuctl-agent start-again`: makes the root of an allocation that Slurm has started again, of what
// its earlier start has kept on the cluster's shared file system (agent/hold/kept_layout.h). The
// batch script runs it before anything else, so that no client is needed.
#ifndef GPUCTL_AGENT_RESTART_START_AGAIN_H_
#define GPUCTL_AGENT_RESTART_START_AGAIN_H_

#include <string>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// Makes the root: its identity, programs and limits, and the jobs as the newest earlier start has
// kept them. A job that may start again (MayStartAgain) gets its content, as at its first start,
// over that its checkpoints and results, and waits for its next attempt. NOT_FOUND when no job is
// left that may: then nothing is to be started. The root, named "JOB-RESTART", is held already.
absl::Status StartAgain(const RootPaths& root, const std::string& directory, Clock& clock);

// Ends a job in `copy`, of which `job` is a part or a copy, that must not go on: one that waits,
// and one whose node failed. Nothing happens to one that is over.
absl::Status EndKept(const JobPaths& job, const std::string& copy, absl::string_view reason,
                     Clock& clock);

// Looks for the token of $GPUCTL_RESULTS_TOKEN first, so that only the lease's own directory
// counts. Returns 0, or 1 after printing why.
int RunStartAgain(const std::string& root, const std::string& directory);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_RESTART_START_AGAIN_H_
