// Limits of a rented node: what was agreed with the user, told to the node; and what has come home,
// which ends the node's salvage.
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

// What the node is told beside what the lease says.
struct NodeLimitFacts {
  std::string release_base_url;  // the provider's API without a path
  bool self_release = false;     // the instance has a key to end its bill with
  double spent_usd = 0;          // until now, boot, disk and traffic included
  absl::Duration grace = absl::Seconds(60);
  bool checkpoints_only = false;  // the run names no results but its checkpoints
};

// The message for the node of `lease`. `now_ms` becomes its revision: a later one displaces an
// earlier.
gpuctl::v1::NodeLimits MakeNodeLimits(const Lease& lease, const NodeLimitFacts& facts,
                                      int64_t now_ms);

// Tells the node and reads back what holds. FAILED_PRECONDITION when other limits hold there, newer
// than these.
absl::StatusOr<gpuctl::v1::NodeLimitsState> SendNodeLimits(NodeCalls& calls,
                                                           const gpuctl::v1::NodeLimits& limits);

// Tells the node of `row` that the checkpoint of `step` (absent: none) is at home, and with `all`
// every result of a job that was over before they were listed.
absl::Status TellHome(NodeCalls& calls, const RunRow& row, std::optional<int64_t> step, bool all);

// Whether `node` says that the job is over: what it left does not change any more.
bool IsJobOver(const gpuctl::v1::HelloReply& node, const std::string& job_id);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_NODE_TELL_NODE_H_
