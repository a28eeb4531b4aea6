// Idle machines of ours that a launch or a resume does not use.
#ifndef GPUCTL_CLIENT_VERBS_UNUSED_IDLE_H_
#define GPUCTL_CLIENT_VERBS_UNUSED_IDLE_H_

#include "absl/status/status.h"
#include "client/market/holdings.h"
#include "client/plan/launch_plan.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// Adds to the plan of a run that rents the idle machines of ours that it does not use, and why.
// With `tell` also says so, for those who do not see the plan.
absl::Status AddUnusedIdle(CommandContext& context, Holdings& holdings, RunStore& store, bool tell,
                           LaunchPlan& plan);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_UNUSED_IDLE_H_
