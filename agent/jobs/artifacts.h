// The results of a job, for pull.
#ifndef GPUCTL_AGENT_JOBS_ARTIFACTS_H_
#define GPUCTL_AGENT_JOBS_ARTIFACTS_H_

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/job/job_layout.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// Returns the complete checkpoints: those of the trainer and those that the request's checkpoint
// patterns find. If the request has a file pattern, also the regular files of work/ that match it
// (common/base/path_pattern.h), in the order of PathLess, a page of them if it asks for pages; if
// it has none and asks for it, those of agent/results/beside_checkpoints.h instead.
// NOT_FOUND for an unknown job.
absl::StatusOr<gpuctl::v1::ListArtifactsReply> ListArtifacts(
    const JobPaths& job, const gpuctl::v1::ListArtifactsRequest& request, Clock& clock);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_JOBS_ARTIFACTS_H_
