// The plan of a run that goes on from an earlier run's newest checkpoint on this laptop.
#ifndef GPUCTL_CLIENT_PLAN_RESUME_PLAN_H_
#define GPUCTL_CLIENT_PLAN_RESUME_PLAN_H_

#include <optional>

#include "absl/status/statusor.h"
#include "client/market/holdings.h"
#include "client/plan/launch_flags.h"
#include "client/plan/launch_plan.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// The price and cost that the user agreed to, for all machines of a run together.
struct Agreed {
  double usd_per_hour = 0;  // at most
  double cost_usd = 0;      // what is left of the agreed cost
  int retries_used = 0;     // of the run's retries, that of the new run included
};

struct ResumePlan {
  LaunchPlan plan;
  // Keeps others from resuming the same run, until the new run is in the list of runs.
  UniqueFd resuming;
};

// Plans a launch with what `row` was launched with, on a machine chosen as launch does. The new run
// begins with the newest checkpoint on this laptop that is still intact: one of `row`, else one of
// the runs that `row` was resumed from. Skips corrupt checkpoints and says so. Without a
// checkpoint: NOT_FOUND; with `agreed` (nobody is asked), the run starts from the beginning. Flags
// that are set override what `row` was launched with; `agreed` overrides flags that would cost
// more. If the machine of `row` was taken away, the new run gets what is left of its time and cost,
// unless a flag gives another limit; RESOURCE_EXHAUSTED when almost nothing is left. Time in which
// nobody heard `row` counts as used. What goes on by itself (`agreed`, or --as-before) leaves the
// new job only those retries that are not used yet. FAILED_PRECONDITION while another run goes on
// from `row`, or is about to.
absl::StatusOr<ResumePlan> PlanResume(CommandContext& context, Holdings& holdings, RunStore& store,
                                      LaunchFlags& flags, const RunRow& row,
                                      const std::optional<Agreed>& agreed);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_PLAN_RESUME_PLAN_H_
