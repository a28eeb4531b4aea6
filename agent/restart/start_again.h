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
// over that its checkpoints and results, and waits for its next attempt. One that cannot, because
// something of it is damaged or missing, or there is no room, is lost there with the reason, has
// what could be copied, and its copy stays. NOT_FOUND when nothing was kept, or no job is left that
// may go on: then nothing is to be started. Other errors say why nothing can be started. The root,
// named "JOB-RESTART", is held already.
absl::Status StartAgain(const RootPaths& root, const std::string& directory, Clock& clock);

// Makes the root of an allocation's first start, of what was left for it (agent/restart/staged.h):
// as StartAgain, with the jobs that wait there. Without any it is a root of the node that the
// client knows, with its limits and programs, and the client starts its run there.
absl::Status StartFirst(const RootPaths& root, const std::string& directory, Clock& clock);

// Ends a job in `copy`, of which `job` is a part or a copy, that must not go on: one that waits,
// and one whose node failed. Nothing happens to one that is over.
absl::Status EndKept(const JobPaths& job, const std::string& copy, absl::string_view reason,
                     Clock& clock);

// Ends the jobs in the copy of an allocation that Slurm does not start again any more: those that
// wait, those that were stopped there, and those that could not be started again, which are lost
// with the reason.
void EndAllKept(const RootPaths& copy, Clock& clock);

// Looks for the token of $GPUCTL_RESULTS_TOKEN first, so that only the lease's own directory
// counts. Returns 0, or 1 after printing why. Notes in the directory why a
// start makes no root (FailedStartAfter).
int RunStartAgain(const std::string& root, const std::string& directory);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_RESTART_START_AGAIN_H_
