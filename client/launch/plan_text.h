// The text of a launch's plan, which people and scripts read before they agree to it.
#ifndef GPUCTL_CLIENT_LAUNCH_PLAN_TEXT_H_
#define GPUCTL_CLIENT_LAUNCH_PLAN_TEXT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "client/launch/launch_plan.h"

namespace gpuctl {

// Returns the plan as lines for people; the price is last. Long ones are wrapped to `columns`; 0:
// none is.
std::vector<std::string> PlanText(const LaunchPlan& plan, int columns);

// Returns the columns of the terminal on `fd` (stdout or stderr), 0 when it is none.
int ColumnsFor(const CommandContext& context, int fd);

// Returns "plan" of the JSON (docs/json.md).
nlohmann::ordered_json PlanToJson(const LaunchPlan& plan);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LAUNCH_PLAN_TEXT_H_
