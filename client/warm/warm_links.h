// Links to a node that share a connection with the commands before and after.
#ifndef GPUCTL_CLIENT_WARM_WARM_LINKS_H_
#define GPUCTL_CLIENT_WARM_WARM_LINKS_H_

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "client/base/node_target.h"
#include "client/link/link.h"

namespace gpuctl {

struct WarmLinkOptions {
  NodeTarget target;
  std::string state_dir;
  absl::Duration idle = absl::Minutes(10);
};

// Returns links that use the node's warm link for short calls and commands where there is one, and
// otherwise `fresh`. Follows, transfers and everything after a warm link broke go over connections
// of their own. When the object goes, and `fresh` reached the node without a warm link, a holder
// starts, for the next command.
std::unique_ptr<LinkFactory> MakeWarmLinks(WarmLinkOptions options,
                                           std::unique_ptr<LinkFactory> fresh);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_WARM_WARM_LINKS_H_
