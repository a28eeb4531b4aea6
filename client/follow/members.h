// The members of a run on several machines: a row of the list of runs for each, beside the run's
// own, which is that of rank 0.
#ifndef GPUCTL_CLIENT_FOLLOW_MEMBERS_H_
#define GPUCTL_CLIENT_FOLLOW_MEMBERS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// Returns the row of the run's machine `node`; 0 is the run itself. INVALID_ARGUMENT when it has no
// such machine.
absl::StatusOr<RunRow> MemberOf(RunStore& store, RunRow run, int node);

// Brings the output of the other members home and records their ends, once the run has ended, and
// shows the last lines of the member that ended first. Does nothing for another run. What cannot be
// reached is said and left.
void BringMembers(CommandContext& context, RunStore& store, const RunRow& run);

// Does what StopRun does for all members. The node of rank 0 tells the others to stop; they are
// told here, too, so that all end when it cannot be reached. Returns its error then.
absl::Status StopWithMembers(CommandContext& context, RunStore& store, RunRow& run, bool wait);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_FOLLOW_MEMBERS_H_
