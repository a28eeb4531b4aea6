// What a job left in its directory, and what removing that would free.
#ifndef GPUCTL_AGENT_JOBS_JOB_REMOVAL_H_
#define GPUCTL_AGENT_JOBS_JOB_REMOVAL_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/job_layout.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// FAILED_PRECONDITION while a process of the job's, or of somebody who works beside it, lives, or
// something is mounted below its directory: removing would reach what is not the job's.
absl::Status CheckUnused(const JobPaths& job, const std::string& job_id);

// Sets freed_bytes and shared_bytes, by the blocks on the disk. A file counts as freed when all of
// its names are in the directory.
absl::Status MeasureJob(const JobPaths& job, gpuctl::v1::RemoveJobReply& reply);

// Sets left, left_count and left_bytes. A file of work/ is the job's unless it is what was pushed
// last, by content, or untouched content of a data: tree.
absl::Status ListLeft(const JobPaths& job, gpuctl::v1::RemoveJobReply& reply);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_JOBS_JOB_REMOVAL_H_
