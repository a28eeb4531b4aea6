// Carries out a launch that is planned: asks, finds a machine, records, starts, shows.
#ifndef GPUCTL_CLIENT_LAUNCH_LAUNCH_RUN_H_
#define GPUCTL_CLIENT_LAUNCH_LAUNCH_RUN_H_

#include "absl/status/statusor.h"
#include "client/launch/launch_flags.h"
#include "client/launch/launch_plan.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// Returns the exit code of the verb. With `retry` on preempted, a run whose machine is taken away
// while it is shown goes on on another one, from its newest checkpoint at home, under a new name;
// the exit code is then the last one's. `resuming` is the claim of a plan that PlanResume made; it
// is let go once the run is in the list.
absl::StatusOr<int> LaunchRun(CommandContext& context, Holdings& holdings, RunStore& store,
                              LaunchFlags flags, LaunchPlan plan, UniqueFd resuming = UniqueFd());

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LAUNCH_LAUNCH_RUN_H_
