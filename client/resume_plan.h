// From a run that ended to one that goes on from its newest checkpoint at home.
#ifndef GPUCTL_CLIENT_RESUME_PLAN_H_
#define GPUCTL_CLIENT_RESUME_PLAN_H_

#include "absl/status/statusor.h"
#include "client/command.h"
#include "client/launch_flags.h"
#include "client/launch_plan.h"
#include "client/run_store.h"

namespace gpuctl {

// A launch of what `row` was launched with, on a machine that is chosen as launch does, with the
// newest checkpoint that came home and still is what came: its own, else one of the run that it was
// resumed from itself. Corrupt ones are passed over, saying so. Without one: NOT_FOUND, or, with
// `may_begin_anew`, from the beginning. Flags that are set override what it was launched with.
absl::StatusOr<LaunchPlan> PlanResume(CommandContext& context, LaunchFlags& flags,
                                      const RunRow& row, bool may_begin_anew);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RESUME_PLAN_H_
