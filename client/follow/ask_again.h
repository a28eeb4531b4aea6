// Checks an end that gpuctl recorded without the job's word.
#ifndef GPUCTL_CLIENT_FOLLOW_ASK_AGAIN_H_
#define GPUCTL_CLIENT_FOLLOW_ASK_AGAIN_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// True when the run has an end that only gpuctl concluded: another node answered, or the node did
// not know the job. The word of the market, or of a cluster's scheduler, that a machine is gone is
// no such end, and neither is one that the job's lifecycle here confirms.
absl::StatusOr<bool> EndIsConcluded(CommandContext& context, const RunRow& row);

// Asks the node again about a run with such an end. If the same node has the job, undoes the end in
// the list of runs and in `row`, and says so. If the job's lifecycle here has another end, asks
// nobody and records that one. Returns the error of a node that could not be asked;
// the end stays then, as it does where the machine was given back. Costs nothing for other runs.
absl::Status AskAgain(CommandContext& context, RunStore& store, RunRow& row);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_FOLLOW_ASK_AGAIN_H_
