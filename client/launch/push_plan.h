// The trees of a launch's plan, sent to its machine.
#ifndef GPUCTL_CLIENT_LAUNCH_PUSH_PLAN_H_
#define GPUCTL_CLIENT_LAUNCH_PUSH_PLAN_H_

#include "absl/status/status.h"
#include "client/plan/launch_flags.h"
#include "client/plan/launch_plan.h"
#include "client/runs/context.h"

namespace gpuctl {

struct ChosenTrainer;
class LinkFactory;

// Sends all that the job needs to `machine`: the trainer that was chosen (null: none), the data,
// the work directory. A tree that the node has already costs only a round trip. A large one goes to
// an allocation by the login node's file system, where the node sees that, too.
absl::Status PushPlan(CommandContext& context, LinkFactory& links, const NodeTarget& machine,
                      const LaunchPlan& plan, const LaunchFlags& flags,
                      const ChosenTrainer* trainer);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LAUNCH_PUSH_PLAN_H_
