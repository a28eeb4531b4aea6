// Calls to a node outside of following a job: one link, one call, an answer in our own terms.
#ifndef GPUCTL_CLIENT_NODE_ACCESS_H_
#define GPUCTL_CLIENT_NODE_ACCESS_H_

#include <grpcpp/support/status.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/context.h"
#include "client/link.h"
#include "client/paths.h"

namespace gpuctl {

// The programs for nodes that lie beside this one. NOT_FOUND when one is missing; with `for_linux`,
// as rented machines are, also FAILED_PRECONDITION when one is for another system.
absl::StatusOr<BundlePaths> FindNodeBundle(bool for_linux);

// Links to `target`, with the bundle that lies beside this program. NOT_FOUND when there is none.
absl::StatusOr<std::unique_ptr<LinkFactory>> MakeLinks(CommandContext& context,
                                                       const NodeTarget& target);

// A status of gRPC's as one of ours: the codes are the same.
absl::Status FromGrpc(const grpc::Status& status);

// One link with its calls; each has 30 s to answer. All of them are idempotent: one that the link
// did not survive is made once more on a new link, for a first link after an upgrade can reach the
// server that is about to make way. Errors get a hint for the user.
class NodeCalls {
 public:
  // `links` outlives the result.
  static absl::StatusOr<NodeCalls> Connect(CommandContext& context, LinkFactory& links,
                                           const NodeTarget& target);

  absl::StatusOr<gpuctl::v1::HelloReply> Hello();
  absl::StatusOr<gpuctl::v1::Job> StopJob(const std::string& job_id, const std::string& reason);
  // `checkpoint_patterns`: of the run file, for checkpoints that the job's script wrote.
  absl::StatusOr<gpuctl::v1::ListArtifactsReply> ListArtifacts(
      const std::string& job_id, const std::string& pattern,
      const std::vector<std::string>& checkpoint_patterns = {});
  absl::StatusOr<gpuctl::v1::NodeLimitsState> SetNodeLimits(const gpuctl::v1::NodeLimits& limits);
  absl::StatusOr<gpuctl::v1::RemoveJobReply> RemoveJob(const std::string& job_id, bool dry_run);
  absl::StatusOr<gpuctl::v1::NodeLimitsState> MarkHome(const gpuctl::v1::MarkHomeRequest& request);

 private:
  NodeCalls(CommandContext& context, LinkFactory& links, NodeTarget target,
            std::unique_ptr<Link> link)
      : context_(context), links_(links), target_(std::move(target)), link_(std::move(link)) {}
  // One trial; UNAVAILABLE when the link broke or nothing answered.
  template <typename Request, typename Reply, typename Method>
  absl::Status Try(const char* name, const Request& request, Method method, Reply& reply);
  template <typename Request, typename Reply, typename Method>
  absl::StatusOr<Reply> Call(const char* name, const Request& request, Method method);
  CommandContext& context_;
  LinkFactory& links_;
  NodeTarget target_;
  std::unique_ptr<Link> link_;
};

// `status` of something done on `target` or sent to it. Where the node's disk is full, with the
// node's name and the hint that helps; unchanged otherwise.
absl::Status ExplainFullNode(const absl::Status& status, const NodeTarget& target);

// `status` of a failed attempt to reach `target`, with the hint that fits its code.
absl::Status ExplainLinkError(const absl::Status& status, const NodeTarget& target);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_NODE_ACCESS_H_
