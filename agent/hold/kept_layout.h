// The copy of an allocation's jobs on a cluster's shared file system, as its reader finds it.
//
// DIRECTORY/                     made on the login node by the client, one for each lease
//   token                        what the batch script's environment has, too
//   JOB-staged/                  made by the client while the allocation waits in the queue: as if
//     an earlier start had kept it. Jobs in it begin with the first start (agent/restart/staged.h).
//     staged                       there as long as that start may still take it
//   JOB-RESTART/                 made by the node: one for each start of the allocation
//     node_id  jobs/  node/telemetry/   as in a node's root (ARCHITECTURE.md), without locks and
//     FIFOs
//     jobs/ID/kept.json            {"whole":…,"files":…,"bytes":…,"checkpoint_files":…,
//                                  "checkpoint_bytes":…}; whole: all was copied, and is so much
//     end.json                     {"whole":…}: the holder has ended, and all was copied that there
//                                  was
//     tmp/                         what is being copied
//     limits.json  jobs/ID/time_limit   as in the node's root, where they are
//     jobs/ID/refused              why the next start did not go on with this job; it may have
//     files that no later copy has
//   again/                       what the next start needs besides (agent/restart):
//     bin/<digest>/  bin/current   the agent's programs
//     blobs/trees/                 the content of jobs that want to go on
//     stopped/JOB_ID               the reason for which this job must not go on, by the archive
//     failed/JOB-RESTART           why this start of the allocation made no root
#ifndef GPUCTL_AGENT_HOLD_KEPT_LAYOUT_H_
#define GPUCTL_AGENT_HOLD_KEPT_LAYOUT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// The names of files in a copy.
inline constexpr char kKeptEndFile[] = "end.json";
inline constexpr char kKeptTmp[] = "tmp";
// The directory, beside the copies, with what the next start needs. It has parts of a node's root.
inline constexpr char kKeptAgain[] = "again";

// OK when a lease's directory is this user's own, and nobody else may write to it: programs are
// started from there, and files are written. PERMISSION_DENIED else.
absl::Status CheckOwnDirectory(const std::string& directory);

// Notes in a lease's directory that a job must not go on when Slurm starts the allocation again.
absl::Status NoteStopped(const std::string& directory, const std::string& job_id,
                         absl::string_view reason);
// Returns the reason; nothing when the job may go on.
std::optional<std::string> StoppedReason(const std::string& directory, const std::string& job_id);

// One start of an allocation: the name of its root and of its copy, "JOB-RESTART". What was
// accepted before the first one is called "JOB-staged" (kStagedWord of common/release).
struct AllocationStart {
  std::string job;      // as ParseSlurmJob reads it
  int64_t restart = 0;  // kStaged: before the first one
};
inline constexpr int64_t kStaged = -1;
// Returns nothing for another name.
std::optional<AllocationStart> ParseAllocationStart(absl::string_view name);

// Notes in the copy of a job why the allocation's next start does not go on with it.
absl::Status NoteRefused(const JobPaths& copied, absl::string_view why);
// Takes that back.
void ForgetRefused(const JobPaths& copied);
// Returns the reason; nothing where none was noted.
std::optional<std::string> RefusedReason(const JobPaths& copied);

// Notes in the copy of a job that no later copy may have all of it.
absl::Status NoteStays(const JobPaths& copied, absl::string_view why);
// True when that, or RefusedReason, was noted: then nothing removes the copy for a later one.
bool Stays(const JobPaths& copied);

// Notes in a lease's directory why a start of the allocation makes no root.
absl::Status NoteFailedStart(const std::string& directory, const AllocationStart& start,
                             absl::string_view why);
// Returns the reason of the newest start that failed after that of `copy`; nothing when none did.
std::optional<std::string> FailedStartAfter(const RootPaths& copy);

// Notes beside a lease's directory that a node sees what the login node has there.
void NoteSeenByNode(const std::string& directory);
// True when a node has noted that, or the directory is on a network file system: then what is left
// there is most likely found by the node that starts the allocation.
bool IsSeenByNodes(const std::string& directory);

// Returns the copy of the newest start of the allocation in a lease's directory. NOT_FOUND when
// none of its nodes has kept anything there.
absl::StatusOr<std::string> NewestCopy(const std::string& directory);
// Returns that of the newest start before `own`.
absl::StatusOr<std::string> EarlierCopy(const std::string& directory, const AllocationStart& own);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_HOLD_KEPT_LAYOUT_H_
