// Derives a run's state from the mirror of its streams, and records its end.
#ifndef GPUCTL_CLIENT_FOLLOW_RUN_OUTCOME_H_
#define GPUCTL_CLIENT_FOLLOW_RUN_OUTCOME_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/runs/context.h"
#include "client/runs/run_status.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// Returns the run's current status, from the mirror.
absl::StatusOr<RunStatus> MirroredStatus(CommandContext& context, const RunRow& row);

// True for a run on several machines, or a part of one. What its own job came to is not yet what
// the run came to: the others may still fail, and their nodes say so in the lifecycle, behind the
// job's own end. Only when its node calls it over has the last line come.
absl::StatusOr<bool> IsOfSeveral(RunStore& store, const RunRow& row);

// Stores the run's progress and, if the mirror is complete or `follow_result` says that the job is
// lost, its end, into the list of runs and into `row`. `follow_result` is OK where the node has
// called the job over, which counts for a run on several machines.
absl::Status RecordOutcome(CommandContext& context, RunStore& store, RunRow& row,
                           const absl::Status& follow_result);

// Does the same, and records the end also where the mirror is not complete: another gpuctl that has
// stopped holds it, and the node has said that the job is over.
absl::Status RecordNodesEnd(CommandContext& context, RunStore& store, RunRow& row);

// Does so where the node may not have said it yet: records nothing of a run on several machines.
absl::Status RecordProbableEnd(CommandContext& context, RunStore& store, RunRow& row);

// Returns the error, DATA_LOSS, for a node that says that the job is over, and not how it ended.
absl::Status NoEndError(const RunRow& row);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_FOLLOW_RUN_OUTCOME_H_
