// Checkpoints of scripts that do not know gpuctl: finished directories and files of work/ whose
// names match the run file's patterns.
#ifndef GPUCTL_AGENT_RESULTS_FOREIGN_CHECKPOINTS_H_
#define GPUCTL_AGENT_RESULTS_FOREIGN_CHECKPOINTS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/results/result_links.h"
#include "agent/results/writers_end.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// The time without changes after which a checkpoint counts as finished.
constexpr absl::Duration kCheckpointQuietTime = absl::Seconds(10);

struct ForeignSearch {
  std::vector<std::string> patterns;  // relative to work/; see common/base/path_pattern.h
  absl::Time now;
  absl::Duration quiet = kCheckpointQuietTime;
  // For a job that is over. A checkpoint that changed in the quiet time before `ended`, and not
  // after `outlived`, counts only if its files prove that it is whole, because its writer may have
  // been killed.
  std::optional<WritersEnd> writers_end;
  // Decides about symlinks. Null: none is followed.
  ResultLinks* links = nullptr;
  // With links: receives symlinks to files that the patterns mean and that cannot be reached,
  // relative to work/. May be null.
  std::vector<std::string>* unreached = nullptr;
};

// Returns the complete checkpoints below `job_dir`, oldest first. Leaves out checkpoints with a
// temporary name (IsTemporaryName) at any depth of the path; those in which anything changed less
// than `quiet` ago, by the file system's own time (ctime, which a rename changes, too); and those
// that are torn by their layout (common/job/checkpoint_layout.h). Follows only symlinks at places
// that patterns name, and none inside a checkpoint. Does not search below a match.
// RESOURCE_EXHAUSTED when they hold more than 100,000 files.
absl::StatusOr<std::vector<gpuctl::v1::CheckpointInfo>> FindForeignCheckpoints(
    const std::string& job_dir, const ForeignSearch& search);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_RESULTS_FOREIGN_CHECKPOINTS_H_
