// What a launch will do, as people and scripts read it before they agree to it.
#ifndef GPUCTL_CLIENT_LAUNCH_PLAN_TEXT_H_
#define GPUCTL_CLIENT_LAUNCH_PLAN_TEXT_H_

#include <string>

#include "client/launch/launch_plan.h"

namespace gpuctl {

// Returns the plan in lines for people, the price last.
std::string PlanText(const LaunchPlan& plan);

// Returns {"plan": …} (docs/json.md).
std::string PlanJson(const LaunchPlan& plan);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LAUNCH_PLAN_TEXT_H_
