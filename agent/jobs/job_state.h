// The state of a job, derived from its files.
#ifndef GPUCTL_AGENT_JOBS_JOB_STATE_H_
#define GPUCTL_AGENT_JOBS_JOB_STATE_H_

#include "absl/status/statusor.h"
#include "common/job/job_layout.h"
#include "common/job/lifecycle.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// Returns the state of the job in `paths`, derived from spec.json, the shim's lock and the last
// lifecycle line. `why` names these three. NOT_FOUND without spec.json: such a job was never
// accepted.
absl::StatusOr<gpuctl::v1::Job> DeriveJob(const JobPaths& paths);
// Returns the same where spec.json was read already.
absl::StatusOr<gpuctl::v1::Job> DeriveJob(const JobPaths& paths, const StoredSpec& stored);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_JOBS_JOB_STATE_H_
