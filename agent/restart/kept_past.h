// What the copy of a job says of its attempts, when its node may have failed at any moment, and
// what was kept may be damaged.
#ifndef GPUCTL_AGENT_RESTART_KEPT_PAST_H_
#define GPUCTL_AGENT_RESTART_KEPT_PAST_H_

#include "absl/status/statusor.h"
#include "common/job/job_layout.h"
#include "common/job/lifecycle.h"

namespace gpuctl {

struct KeptPast {
  Lifecycle lifecycle;
  // The attempt that has begun and has no end; 0: none. Its own line may be missing.
  int running = 0;
};

// Reads the past of a job. An attempt counts as begun also where only what it wrote was kept, or
// half of its line, so that no number is given twice. DATA_LOSS when the job has begun, and nobody
// knows its attempts.
absl::StatusOr<KeptPast> ReadKeptPast(const JobPaths& job, const gpuctl::v1::JobSpec& spec);

// Returns a spec for a job whose spec.json cannot be read: its id, and a shape with which its
// output can be read.
gpuctl::v1::JobSpec SpecInPlace(const JobPaths& job, const std::string& job_id);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_RESTART_KEPT_PAST_H_
