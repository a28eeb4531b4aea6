// Checkpoints of scripts that know nothing of gpuctl: directories and files of work/ whose names
// match the run file's patterns, once their writer is done.
#ifndef GPUCTL_AGENT_JOBS_FOREIGN_CHECKPOINTS_H_
#define GPUCTL_AGENT_JOBS_FOREIGN_CHECKPOINTS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// How long nothing of a checkpoint may have changed before its writer counts as done.
constexpr absl::Duration kCheckpointQuietTime = absl::Seconds(10);

struct ForeignSearch {
  std::vector<std::string> patterns;  // relative to work/; see common/base/path_pattern.h
  absl::Time now;
  absl::Duration quiet = kCheckpointQuietTime;
  // Nobody writes any more: the job is over. Then what changed in the quiet time before this moment
  // counts only if its files prove that it is whole, for its writer may have been killed; the
  // infinite future, of a job that ended well, asks for no proof.
  std::optional<absl::Time> writers_ended;
};

// The complete ones below `job_dir`, oldest first. Left out are those with a temporary name
// (IsTemporaryName), at any depth of the path; those of which anything changed less than `quiet`
// ago, by the time the file system itself keeps (ctime, which a rename moves too); and those that
// are torn by their layout (common/job/checkpoint_layout.h). Symlinks are not looked through. Below
// a match no other is searched. RESOURCE_EXHAUSTED when they hold more than 100,000 files.
absl::StatusOr<std::vector<gpuctl::v1::CheckpointInfo>> FindForeignCheckpoints(
    const std::string& job_dir, const ForeignSearch& search);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_JOBS_FOREIGN_CHECKPOINTS_H_
