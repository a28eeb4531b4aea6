// Launches a run on several machines: a job on each, which begin together or not at all.
#ifndef GPUCTL_CLIENT_LAUNCH_GANG_LAUNCH_H_
#define GPUCTL_CLIENT_LAUNCH_GANG_LAUNCH_H_

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "client/base/node_target.h"
#include "client/plan/launch_flags.h"
#include "client/plan/launch_plan.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

struct GangHooks {
  // Gets the entry of each part once it is in the list, with its name; the run's own first.
  std::function<void(const RunRow&)> on_listed;
  // Ends what was rented for a launch that is interrupted before anything was started; on a thread
  // of its own. Empty: nothing was.
  std::function<void()> give_back;
};

// Brings the content of `plan` to all `machines`, gives each its job, and shows that of rank 0,
// which is the first one's. The nodes hold their jobs until all have joined; without this process
// they end them by themselves after a minute. With --pull, the newest checkpoints of the others
// come home at the end, too; `all_came` becomes true when nothing is left to come. Returns the exit
// code. An error means that nothing was started, or says what may have been.
absl::StatusOr<int> LaunchGang(CommandContext& context, RunStore& store, const LaunchFlags& flags,
                               const LaunchPlan& plan, const std::vector<NodeTarget>& machines,
                               const GangHooks& hooks, bool* all_came);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LAUNCH_GANG_LAUNCH_H_
