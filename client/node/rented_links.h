// Links to a rented machine, whose address may change while it is ours.
#ifndef GPUCTL_CLIENT_NODE_RENTED_LINKS_H_
#define GPUCTL_CLIENT_NODE_RENTED_LINKS_H_

#include <functional>
#include <memory>

#include "client/base/node_target.h"
#include "client/link/link.h"
#include "client/runs/context.h"

namespace gpuctl {

// Makes links to `target` with `make`, at the address that the ledger has for it. When the machine
// cannot be reached there, its market is asked, at most every few seconds: another address goes
// into the ledger and is tried at once. Thread-safe as its links are; `context` outlives it.
std::unique_ptr<LinkFactory> MakeRentedLinks(
    CommandContext& context, NodeTarget target,
    std::function<std::unique_ptr<LinkFactory>(const NodeTarget&)> make);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_NODE_RENTED_LINKS_H_
