// Makes links to an allocation of a cluster; when it is over, to what was kept of it.
#ifndef GPUCTL_CLIENT_NODE_ALLOCATION_LINKS_H_
#define GPUCTL_CLIENT_NODE_ALLOCATION_LINKS_H_

#include <functional>
#include <memory>
#include <string>

#include "client/base/node_target.h"
#include "client/link/link.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"

namespace gpuctl {

inline constexpr char kStageCommand[] = "stage --job ";

// Makes links with `live`, as long as the allocation `target` (TargetOfInstance) may live. When a
// link fails and the scheduler says that the allocation is over, or the ledger says so, notes that
// in the ledger and makes links with `kept`, which gets the lease's label. Where nothing was kept,
// the errors are those of `live`. While the scheduler has the allocation in its queue, calls go to
// `kept` with `in_queue`, and the user is told once; RunAgent(kStageCommand JOB) lets a run be
// started there although the allocation has not begun (client/rent/leave_in_queue.h). While it is
// suspended, the errors have LinkFault::kSuspended. As thread-safe as its links; `context` outlives
// it. `open_markets`: see Holdings.
std::unique_ptr<LinkFactory> MakeAllocationLinks(
    CommandContext& context, NodeTarget target, std::unique_ptr<LinkFactory> live,
    std::function<std::unique_ptr<LinkFactory>(const std::string& label, bool in_queue)> kept,
    Holdings::MarketOpener open_markets = nullptr);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_NODE_ALLOCATION_LINKS_H_
