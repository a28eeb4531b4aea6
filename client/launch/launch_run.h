// Carries out a planned launch: asks, finds a machine, records, starts, shows.
#ifndef GPUCTL_CLIENT_LAUNCH_LAUNCH_RUN_H_
#define GPUCTL_CLIENT_LAUNCH_LAUNCH_RUN_H_

#include "absl/status/statusor.h"
#include "client/market/holdings.h"
#include "client/plan/launch_flags.h"
#include "client/plan/launch_plan.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "client/streams/follower.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// Asks the user's own machines of `plan` whether they have the GPUs and the disk that it names, as
// LaunchRun does: for --dry-run. Delivers the agent where it is missing.
absl::Status CheckOwnMachines(CommandContext& context, const LaunchPlan& plan);

// Launches `plan`. Returns the exit code of the verb. With `retry` on preempted, when a run's
// machine is taken away while the run is shown, another run goes on from its newest checkpoint on
// this laptop, on another machine and under a new name. The exit code is then that of the last run.
// `resuming` is the claim of a plan that PlanResume made; it is released once the run is in the
// list. `turn`: its place behind other starts on the machine.
absl::StatusOr<int> LaunchRun(CommandContext& context, Holdings& holdings, RunStore& store,
                              LaunchFlags flags, LaunchPlan plan, UniqueFd resuming = UniqueFd(),
                              StartTurn turn = {});

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LAUNCH_LAUNCH_RUN_H_
