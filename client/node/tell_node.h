// Sends a rented node its limits, as agreed with the user, and tells it which results are home,
// which ends its salvage.
#ifndef GPUCTL_CLIENT_NODE_TELL_NODE_H_
#define GPUCTL_CLIENT_NODE_TELL_NODE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/node/node_calls.h"
#include "client/runs/run_store.h"
#include "gpuctl/v1/agent.pb.h"
#include "provisioning/ledger/lease.h"

namespace gpuctl {

// Data for the node that are not in the lease.
struct NodeLimitFacts {
  std::string release_base_url;  // the provider's API without a path
  bool self_release = false;     // the instance has a key to end its own bill
  double spent_usd = 0;          // until now; boot, disk and the known traffic included
  absl::Duration grace = absl::Seconds(60);
  bool checkpoints_only = false;  // checkpoints are the only results that the run names
};

// Returns the message for the node of `lease`. `now_ms` becomes its revision: a later revision
// replaces an earlier one.
gpuctl::v1::NodeLimits MakeNodeLimits(const Lease& lease, const NodeLimitFacts& facts,
                                      int64_t now_ms);

// Sends the limits and returns the node's valid ones. FAILED_PRECONDITION when the node has newer
// limits than these.
absl::StatusOr<gpuctl::v1::NodeLimitsState> SendNodeLimits(NodeCalls& calls,
                                                           const gpuctl::v1::NodeLimits& limits);

// Tells the node of `row` that the checkpoint of `step` (absent: none) is home. `all`: every result
// is home, and the job was over before they were listed. Returns the node's limits after that.
absl::StatusOr<gpuctl::v1::NodeLimitsState> TellHome(NodeCalls& calls, const RunRow& row,
                                                     std::optional<int64_t> step, bool all);

// True when `node` says that the job is over: its results do not change any more.
bool IsJobOver(const gpuctl::v1::HelloReply& node, const std::string& job_id);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_NODE_TELL_NODE_H_
