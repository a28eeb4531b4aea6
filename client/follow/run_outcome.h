// What the mirror of a run's streams says about it: its state, and its end recorded.
#ifndef GPUCTL_CLIENT_FOLLOW_RUN_OUTCOME_H_
#define GPUCTL_CLIENT_FOLLOW_RUN_OUTCOME_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/runs/context.h"
#include "client/runs/run_status.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// What the mirror says about the run now.
absl::StatusOr<RunStatus> MirroredStatus(CommandContext& context, const RunRow& row);

// Stores the run's progress and, if the mirror is complete or `follow_result` says that the job is
// lost, its end, into the list of runs and into `row`.
absl::Status RecordOutcome(CommandContext& context, RunStore& store, RunRow& row,
                           const absl::Status& follow_result);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_FOLLOW_RUN_OUTCOME_H_
