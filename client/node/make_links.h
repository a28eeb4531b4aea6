// Makes links to a node, with the programs to deliver.
#ifndef GPUCTL_CLIENT_NODE_MAKE_LINKS_H_
#define GPUCTL_CLIENT_NODE_MAKE_LINKS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/base/node_target.h"
#include "client/link/link.h"
#include "client/programs/node_programs.h"
#include "client/runs/context.h"

namespace gpuctl {

// Finds the programs for nodes that this laptop has. NOT_FOUND, with the command that brings them
// and the exit code of usage errors, when those for a platform of `needed` are missing, and when
// there are none at all.
absl::StatusOr<NodePrograms> FindNodePrograms(const std::vector<NodePlatform>& needed);

// Makes links to `target`, with these programs. NOT_FOUND when there are none, or, for this
// machine, none for its platform.
absl::StatusOr<std::unique_ptr<LinkFactory>> MakeLinks(CommandContext& context,
                                                       const NodeTarget& target);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_NODE_MAKE_LINKS_H_
