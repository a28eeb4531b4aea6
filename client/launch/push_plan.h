// The trees of a launch's plan, sent to its machine.
#ifndef GPUCTL_CLIENT_LAUNCH_PUSH_PLAN_H_
#define GPUCTL_CLIENT_LAUNCH_PUSH_PLAN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/plan/launch_flags.h"
#include "client/plan/launch_plan.h"
#include "client/runs/context.h"
#include "common/transfer/transfer.h"

namespace gpuctl {

struct ChosenTrainer;
class LinkFactory;

// Gets the progress of the tree `what`, on the thread of PushPlan.
using PushObserver = std::function<void(const std::string& what, const TransferCount& count)>;

// Sends all that the job needs to `machine`: the trainer that was chosen (null: none), the data,
// the work directory. A tree that the node has already costs only a round trip. A large one goes to
// an allocation by the login node's file system, where the node sees that, too. With `observe` no
// bar is shown, and several threads may send to a machine each. `others_follow`: other nodes of the
// same allocation take the same trees, so what they share stays there for them.
absl::Status PushPlan(CommandContext& context, LinkFactory& links, const NodeTarget& machine,
                      const LaunchPlan& plan, const LaunchFlags& flags,
                      const ChosenTrainer* trainer, const PushObserver& observe = nullptr,
                      bool others_follow = false);

// Trees that are larger go by a store that the node shares with its login node, where there is one;
// and content that is larger goes to one of several machines first.
inline constexpr int64_t kLargeBytes = 8 << 20;

// Returns the digests of those trees, and their bytes.
struct PlanContent {
  std::vector<std::string> trees;
  int64_t bytes = 0;
};
PlanContent ContentOf(const LaunchPlan& plan, const ChosenTrainer* trainer);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LAUNCH_PUSH_PLAN_H_
