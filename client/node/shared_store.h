// A store for content on a file system that a cluster's login node shares with the nodes: what is
// sent there by plain ssh need not pass through the scheduler's steps.
#ifndef GPUCTL_CLIENT_NODE_SHARED_STORE_H_
#define GPUCTL_CLIENT_NODE_SHARED_STORE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/base/node_target.h"
#include "client/link/link.h"
#include "client/runs/context.h"

namespace gpuctl {

class SharedStore {
 public:
  // Returns the store for the machine `target`, whose links are `node`; null where the machine is
  // no allocation, or its node does not see the directory. Asks the node. `node` outlives it.
  static std::unique_ptr<SharedStore> Find(CommandContext& context, const NodeTarget& target,
                                           LinkFactory& node);

  // Returns the links by which trees are sent into the store.
  LinkFactory& links() { return *links_; }
  // Makes the node take a tree from the store into its own. It does not stay in the store, unless
  // `keep`. The error has the node's words.
  absl::Status Give(const std::string& digest, bool keep);

 private:
  SharedStore(std::unique_ptr<LinkFactory> links, LinkFactory& node, std::string place)
      : links_(std::move(links)), node_(node), place_(std::move(place)) {}

  const std::unique_ptr<LinkFactory> links_;
  LinkFactory& node_;
  const std::string place_;  // a shell word
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_NODE_SHARED_STORE_H_
