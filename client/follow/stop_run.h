// Ends a run's job, for stop and down.
#ifndef GPUCTL_CLIENT_FOLLOW_STOP_RUN_H_
#define GPUCTL_CLIENT_FOLLOW_STOP_RUN_H_

#include "absl/status/status.h"
#include "client/runs/context.h"

namespace gpuctl {

// Tells the node to stop the job. With `wait`, follows the job until it has ended, at most for its
// grace and a minute by this laptop's clock; `row` then has its end. DEADLINE_EXCEEDED (exit code
// 124): it was told to stop and has not ended. Returns OK for a run that has ended already, and for
// one that no node ever accepted. Asks the node again about an end that only gpuctl concluded, and
// says when that is not possible.
absl::Status StopRun(CommandContext& context, RunStore& store, RunRow& row, bool wait);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_FOLLOW_STOP_RUN_H_
