// The files that a job left in its directory, and the room that their removal would free.
#ifndef GPUCTL_AGENT_JOBS_JOB_REMOVAL_H_
#define GPUCTL_AGENT_JOBS_JOB_REMOVAL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/job_layout.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// Returns FAILED_PRECONDITION while a process of the job, or of somebody who works in its
// directory, lives, or while something is mounted below its directory. A removal would then affect
// things that are not the job's.
absl::Status CheckUnused(const JobPaths& job, const std::string& job_id);

// Sets freed_bytes and shared_bytes from the blocks on the disk. A file counts as freed when all of
// its names are in the directory.
absl::Status MeasureJob(const JobPaths& job, gpuctl::v1::RemoveJobReply& reply);

// Sets left, left_count and left_bytes. A file of work/ is the job's, unless its content is that of
// the last push or it is unchanged content of a data: tree. A file of ckpt/ counts when it is in no
// complete checkpoint.
// Follows symlinks that `patterns` name (agent/results/result_links.h). Another symlink that the
// job made counts as one file when files outside of the job's directory behind it changed.
absl::Status ListLeft(const JobPaths& job, const std::vector<std::string>& patterns,
                      gpuctl::v1::RemoveJobReply& reply);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_JOBS_JOB_REMOVAL_H_
