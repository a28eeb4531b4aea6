// Links to a node, with the programs that are sent there.
#ifndef GPUCTL_CLIENT_NODE_MAKE_LINKS_H_
#define GPUCTL_CLIENT_NODE_MAKE_LINKS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "client/base/node_target.h"
#include "client/base/paths.h"
#include "client/link/link.h"
#include "client/runs/context.h"

namespace gpuctl {

// The programs for nodes that lie beside this one. NOT_FOUND when one is missing; with `for_linux`,
// as rented machines are, also FAILED_PRECONDITION when one is for another system.
absl::StatusOr<BundlePaths> FindNodeBundle(bool for_linux);

// Links to `target`, with the bundle that lies beside this program. NOT_FOUND when there is none.
absl::StatusOr<std::unique_ptr<LinkFactory>> MakeLinks(CommandContext& context,
                                                       const NodeTarget& target);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_NODE_MAKE_LINKS_H_
