// What a job left behind, for pull.
#ifndef GPUCTL_AGENT_ARTIFACTS_H_
#define GPUCTL_AGENT_ARTIFACTS_H_

#include "absl/status/statusor.h"
#include "common/job_layout.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// Complete checkpoints, and, when the request has a pattern, the regular files of work/ that it
// matches: a shell pattern as in fnmatch(3), where "**/" also matches any directories. NOT_FOUND
// for a job that is not here.
absl::StatusOr<gpuctl::v1::ListArtifactsReply> ListArtifacts(
    const JobPaths& job, const gpuctl::v1::ListArtifactsRequest& request);

// Whether `path` (relative, '/'-separated) matches `pattern`.
bool MatchesPattern(const std::string& pattern, const std::string& path);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_ARTIFACTS_H_
