// Makes links to a node, with the programs to deliver.
#ifndef GPUCTL_CLIENT_NODE_MAKE_LINKS_H_
#define GPUCTL_CLIENT_NODE_MAKE_LINKS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "client/base/node_target.h"
#include "client/base/paths.h"
#include "client/link/link.h"
#include "client/runs/context.h"

namespace gpuctl {

// Finds the programs for nodes beside this program. NOT_FOUND when one is missing. With
// `for_linux`, for rented machines, also FAILED_PRECONDITION when one is for another system.
absl::StatusOr<BundlePaths> FindNodeBundle(bool for_linux);

// Makes links to `target`, with the bundle beside this program. NOT_FOUND when there is none.
absl::StatusOr<std::unique_ptr<LinkFactory>> MakeLinks(CommandContext& context,
                                                       const NodeTarget& target);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_NODE_MAKE_LINKS_H_
