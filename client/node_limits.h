// Limits of a rented node: what was agreed with the user, told to the node; and what has come home,
// which ends the node's salvage.
#ifndef GPUCTL_CLIENT_NODE_LIMITS_H_
#define GPUCTL_CLIENT_NODE_LIMITS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/node_access.h"
#include "client/run_store.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// What the user agreed to; the defaults are those of the run file.
struct AgreedLimits {
  absl::Duration time = absl::Hours(24);
  absl::Duration idle = absl::Minutes(10);
  absl::Duration salvage = absl::Hours(24);
  absl::Duration lease = absl::Hours(72);
  absl::Duration grace = absl::Seconds(60);
  std::optional<double> cost_usd;  // absent: the price of time and salvage
};

// What is known of the lease when its node is told.
struct LeaseFacts {
  std::string lease_id;
  std::string provider;  // "runpod", "lambda", "vast"
  std::string instance_id;
  std::string release_base_url;  // the provider's API without a path
  double rate_usd_per_hour = 0;
  double spent_usd = 0;  // until now, boot, disk and traffic included
  int64_t billing_started_ms = 0;
  bool checkpoints_only = false;  // the run names no results but its checkpoints
};

// The salvage that fits: at most a third of an explicit cost.
absl::Duration SalvageWithin(const AgreedLimits& limits, double rate_usd_per_hour);
// The explicit cost, or rate × (time + salvage) on top of what was spent at `spent_usd`.
double CostLimit(const AgreedLimits& limits, double rate_usd_per_hour, double spent_usd);

// The message for the node. `now_ms` becomes its revision: a later one displaces an earlier.
gpuctl::v1::NodeLimits MakeNodeLimits(const AgreedLimits& limits, const LeaseFacts& lease,
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

#endif  // GPUCTL_CLIENT_NODE_LIMITS_H_
