// The text of a launch's plan, which people and scripts read before they agree to it.
#ifndef GPUCTL_CLIENT_PLAN_PLAN_TEXT_H_
#define GPUCTL_CLIENT_PLAN_PLAN_TEXT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "client/plan/launch_plan.h"

namespace gpuctl {

// What a plan is of: one run, or each run of a batch. The latter has no name, and its cost is the
// most within the price limit, because later runs may find other machines.
enum class PlanOf { kRun, kEachOfBatch };

// Returns the plan as lines for people; the price is last. Long ones are wrapped to `columns`; 0:
// none is.
std::vector<std::string> PlanText(const LaunchPlan& plan, int columns, PlanOf of = PlanOf::kRun);

// Returns the lines of the plan that say which machine is rented, and what bills on without this
// computer. Requires a plan that rents.
std::vector<std::string> MachineText(const LaunchPlan& plan);

// Returns the line of the plan that warns of results that nobody names; "" where none are lost.
std::string ResultsText(const LaunchPlan& plan);

// Returns the line of the plan about Slurm's options in the run's script, which count for nothing
// here; "" when there are none.
std::string IgnoredText(const LaunchPlan& plan);

// Returns the line of the plan about what is not done when this gpuctl dies; "" when there is none.
std::string NeedsText(const LaunchPlan& plan);

// Returns the columns of the terminal on `fd` (stdout or stderr), 0 when it is none.
int ColumnsFor(const CommandContext& context, int fd);

// Returns "plan" of the JSON (docs/json.md).
nlohmann::ordered_json PlanToJson(const LaunchPlan& plan, PlanOf of = PlanOf::kRun);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_PLAN_PLAN_TEXT_H_
