// What a job left behind, for pull.
#ifndef GPUCTL_AGENT_JOBS_ARTIFACTS_H_
#define GPUCTL_AGENT_JOBS_ARTIFACTS_H_

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/job/job_layout.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// Complete checkpoints, those of the trainer and those the request's patterns find, and, when the
// request has a pattern, the regular files of work/ that it matches (common/base/path_pattern.h).
// NOT_FOUND for a job that is not here.
absl::StatusOr<gpuctl::v1::ListArtifactsReply> ListArtifacts(
    const JobPaths& job, const gpuctl::v1::ListArtifactsRequest& request, Clock& clock);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_JOBS_ARTIFACTS_H_
