// From a run that ended to one that goes on from its newest checkpoint at home.
#ifndef GPUCTL_CLIENT_LAUNCH_RESUME_PLAN_H_
#define GPUCTL_CLIENT_LAUNCH_RESUME_PLAN_H_

#include <optional>

#include "absl/status/statusor.h"
#include "client/launch/launch_flags.h"
#include "client/launch/launch_plan.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// What was agreed to for all machines of a run together.
struct Agreed {
  double usd_per_hour = 0;  // at most
  double cost_usd = 0;      // what is left of it
};

struct ResumePlan {
  LaunchPlan plan;
  // Keeps others from resuming the same run, until this one is in the list of runs.
  UniqueFd resuming;
};

// A launch of what `row` was launched with, on a machine that is chosen as launch does, with the
// newest checkpoint that came home and still is what came: its own, else one of the run that it was
// resumed from itself. Corrupt ones are passed over, saying so. Without one: NOT_FOUND, or, with
// `agreed`, for one that nobody is asked about, from the beginning. Flags that are set override
// what it was launched with; `agreed` overrides those that would cost more. A run whose machine was
// taken away goes on with what is left of its time and of its cost unless a flag gives it another:
// RESOURCE_EXHAUSTED when that is next to nothing. FAILED_PRECONDITION while another run goes on
// from it, or is about to. Time in which nobody heard it counts as used.
absl::StatusOr<ResumePlan> PlanResume(CommandContext& context, Holdings& holdings, RunStore& store,
                                      LaunchFlags& flags, const RunRow& row,
                                      const std::optional<Agreed>& agreed);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LAUNCH_RESUME_PLAN_H_
