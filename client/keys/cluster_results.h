// What the user's cluster keeps of allocations, on its login node.
#ifndef GPUCTL_CLIENT_KEYS_CLUSTER_RESULTS_H_
#define GPUCTL_CLIENT_KEYS_CLUSTER_RESULTS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/base/node_target.h"
#include "client/runs/context.h"
#include "provisioning/slurm/kept_results.h"

namespace gpuctl {

// For one thread at a time. Its calls are those of provisioning/slurm/kept_results.h.
class ClusterResults {
 public:
  // Returns that of the login node in the user's settings. Null where no cluster is set, or where
  // nothing is kept there. Connects at the first call. `context` outlives it.
  static absl::StatusOr<std::unique_ptr<ClusterResults>> OfSettings(CommandContext& context);
  // Returns that of the login node of an allocation, a run's target.
  static absl::StatusOr<std::unique_ptr<ClusterResults>> OfAllocation(CommandContext& context,
                                                                      const NodeTarget& allocation);

  // Returns the login node, as the user named it.
  const std::string& host() const { return host_; }
  absl::StatusOr<std::vector<KeptResults>> List() { return ListKept(*login_, results_); }
  absl::StatusOr<std::vector<KeptResults>> Find(absl::string_view label) {
    return FindKept(*login_, results_, label);
  }
  absl::Status Remove(absl::string_view label) { return RemoveKept(*login_, results_, label); }

 private:
  static absl::StatusOr<std::unique_ptr<ClusterResults>> Open(CommandContext& context,
                                                              const std::string& host);
  ClusterResults(std::string host, std::shared_ptr<LoginNode> login, std::string results)
      : host_(std::move(host)), login_(std::move(login)), results_(std::move(results)) {}

  const std::string host_;
  const std::shared_ptr<LoginNode> login_;
  const std::string results_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_KEYS_CLUSTER_RESULTS_H_
