// Calls to a node other than following a job: one link, one call, the answer as a status.
#ifndef GPUCTL_CLIENT_NODE_NODE_CALLS_H_
#define GPUCTL_CLIENT_NODE_NODE_CALLS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/base/node_target.h"
#include "client/link/link.h"
#include "client/runs/context.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// One link with its calls; each has 30 s to answer. All calls are idempotent: when the link breaks
// during a call, the call is repeated once on a new link. The reason is an upgrade: the first link
// after it can reach the server that a newer one is replacing. Errors get a hint for the user.
class NodeCalls {
 public:
  // `links` outlives the result.
  static absl::StatusOr<NodeCalls> Connect(CommandContext& context, LinkFactory& links,
                                           const NodeTarget& target);

  // The reply has the jobs that are not over, and those of `job_ids`. An older node sends all.
  absl::StatusOr<gpuctl::v1::HelloReply> Hello(const std::vector<std::string>& job_ids = {});
  // Does the same once the node has listed its GPUs: an agent that has just started has not.
  // After 20 seconds without a list it returns what there is.
  absl::StatusOr<gpuctl::v1::HelloReply> HelloWithGpus(Clock& clock);
  // Returns all jobs of the node. An older node, which has no pages, answers by Hello.
  absl::StatusOr<std::vector<gpuctl::v1::Job>> ListJobs();
  // Starts a job that the node may have already; see the service's StartJob.
  absl::StatusOr<gpuctl::v1::Job> StartJob(const gpuctl::v1::StartJobRequest& request);
  // `node_id` is the node that was asked to start the job; another one refuses the call.
  absl::StatusOr<gpuctl::v1::Job> StopJob(const std::string& job_id, const std::string& reason,
                                          const std::string& node_id);
  // Sets the running time after which the node stops the job. UNIMPLEMENTED: its agent is older.
  absl::StatusOr<gpuctl::v1::Job> SetJobTime(const std::string& job_id, absl::Duration time,
                                             const std::string& node_id);
  // `checkpoint_patterns` are the run file's, for checkpoints that the job's script wrote. An empty
  // `pattern` lists the files beside the checkpoints in ckpt/; an older node lists none.
  absl::StatusOr<gpuctl::v1::ListArtifactsReply> ListArtifacts(
      const std::string& job_id, const std::string& pattern,
      const std::vector<std::string>& checkpoint_patterns = {});
  absl::StatusOr<gpuctl::v1::NodeLimitsState> SetNodeLimits(const gpuctl::v1::NodeLimits& limits);
  absl::StatusOr<gpuctl::v1::RemoveJobReply> RemoveJob(
      const std::string& job_id, bool dry_run, const std::vector<std::string>& patterns = {});
  absl::StatusOr<gpuctl::v1::NodeLimitsState> MarkHome(const gpuctl::v1::MarkHomeRequest& request);

 private:
  NodeCalls(CommandContext& context, LinkFactory& links, NodeTarget target,
            std::unique_ptr<Link> link)
      : context_(context), links_(links), target_(std::move(target)), link_(std::move(link)) {}
  // Tries a call once; UNAVAILABLE when the link broke or nothing answered.
  template <typename Request, typename Reply, typename Method>
  absl::Status Try(const char* name, const Request& request, Method method, Reply& reply);
  template <typename Request, typename Reply, typename Method>
  absl::StatusOr<Reply> Call(const char* name, const Request& request, Method method);
  CommandContext& context_;
  LinkFactory& links_;
  NodeTarget target_;
  std::unique_ptr<Link> link_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_NODE_NODE_CALLS_H_
