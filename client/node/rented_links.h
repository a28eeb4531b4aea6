// Makes links to a rented machine, whose address may change during the lease.
#ifndef GPUCTL_CLIENT_NODE_RENTED_LINKS_H_
#define GPUCTL_CLIENT_NODE_RENTED_LINKS_H_

#include <functional>
#include <memory>

#include "client/base/node_target.h"
#include "client/link/link.h"
#include "client/runs/context.h"

namespace gpuctl {

// Makes links to `target` with `make`, at the address that the ledger has for it. When the machine
// cannot be reached there, asks its market, at most every few seconds; a new address goes into the
// ledger and is tried at once. As thread-safe as its links; `context` outlives it.
std::unique_ptr<LinkFactory> MakeRentedLinks(
    CommandContext& context, NodeTarget target,
    std::function<std::unique_ptr<LinkFactory>(const NodeTarget&)> make);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_NODE_RENTED_LINKS_H_
