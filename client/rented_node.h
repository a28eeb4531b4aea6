// From offers to a rented machine that is known to work, with its limits on it: what launch does
// between the accepted price and the start of the job.
#ifndef GPUCTL_CLIENT_RENTED_NODE_H_
#define GPUCTL_CLIENT_RENTED_NODE_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/context.h"
#include "client/market_access.h"
#include "client/node_target.h"
#include "client/run_spec.h"
#include "provisioning/lease_lock.h"
#include "provisioning/ledger.h"
#include "provisioning/rental.h"

namespace gpuctl {

struct RentedNodeRequest {
  const RunSpec* spec = nullptr;
  std::string run_id;
  std::string run_name;
  std::vector<Offer> offers;  // that fit, best first
  // Most that the user was shown and agreed to; absent: only the spec's max_price holds.
  std::optional<double> agreed_usd_per_hour;
  std::optional<Volume> volume;  // they can all mount it
};

struct RentedNode {
  NodeTarget target;
  Lease lease;
  // Keep it until the job is started: until then another launch would take the machine for idle.
  LeaseLock use;
};

// "runpod/8fj2k1": what the target of an instance is called. Host keys are pinned under it.
std::string RentedNodeName(absl::string_view provider, absl::string_view instance_id);

// How to reach the instance with gpuctl's own key. `address` is complete.
absl::StatusOr<NodeTarget> TargetOfInstance(CommandContext& context, absl::string_view provider,
                                            absl::string_view instance_id,
                                            const SshAddress& address);

// Rents the first of request.offers that turns out to work: goes on to the next one when an offer
// is gone, and gives a machine back (and leaves its place out for a while) that does not come up in
// time or is not what was promised. Says on stderr what it does and why. Errors: NOT_FOUND with
// exit code 121 when none is left; the market's own, with its exit code, when no market took the
// request; CANCELLED by Ctrl-C, saying what bills, if anything.
absl::StatusOr<RentedNode> RentNode(CommandContext& context, Ledger& ledger,
                                    std::vector<Market>& markets, const RentedNodeRequest& request);

// An idle machine of ours that fits and costs no more than was agreed to, taken for the run;
// nothing when there is none. Machines that cannot be reached are passed over.
absl::StatusOr<std::optional<RentedNode>> ReuseNode(CommandContext& context, Ledger& ledger,
                                                    const RentedNodeRequest& request);

// The machine that ReuseNode would take now. Leaves it alone.
absl::StatusOr<std::optional<Lease>> FindIdleNode(CommandContext& context, Ledger& ledger,
                                                  const RentedNodeRequest& request);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RENTED_NODE_H_
