// Claims a rented machine for a run: its node gets the limits, and the ledger gets the claim.
#ifndef GPUCTL_CLIENT_RENT_CLAIM_NODE_H_
#define GPUCTL_CLIENT_RENT_CLAIM_NODE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/base/node_target.h"
#include "client/node/node_calls.h"
#include "client/runs/context.h"
#include "client/spec/run_spec.h"
#include "gpuctl/v1/agent.pb.h"
#include "provisioning/ledger/lease_lock.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/market/types.h"
#include "provisioning/rental/rental.h"

namespace gpuctl {

// The requirements of a run for its machine.
struct RentedNodeRequest {
  const RunSpec* spec = nullptr;
  std::string run_id;
  std::string run_name;
  std::vector<Offer> offers;  // those that fit, best first
  // The highest price in USD per hour that the user was shown and agreed to; absent: only the
  // spec's max_price holds.
  std::optional<double> agreed_usd_per_hour;
  // The most that the run may cost, in USD, as the user was shown and agreed to; absent: each offer
  // has its own.
  std::optional<double> agreed_usd;
  std::optional<Volume> volume;        // all offers can mount it
  std::optional<RegistryLogin> login;  // for the spec's image; the markets of all offers take it
  // The time from a machine's address until ssh must work. sshd starts later than providers say,
  // and some hosts never let anybody in.
  absl::Duration ssh_within = absl::Minutes(5);
  // The machine that was rented for the run already, as the only offer; its lock is taken from
  // here. Null: none was.
  Rental* rented = nullptr;
  // True ends the work; any thread calls it. Empty: signals end it, which RentNode catches.
  std::function<bool()> cancelled;
  // With `cancelled`: true when it is the user who ends the work. Without it the outcome of a
  // request for a machine is awaited also when the answer is lost.
  std::function<bool()> interrupted;
  // Waits until the request for a machine may be sent, as others of the run are asked for, too, and
  // returns what ends the turn; null where the work was cancelled meanwhile. Empty: at once.
  std::function<std::shared_ptr<void>()> take_turn;
  // What stands before each line that is said: "node 2: ".
  std::string prefix;
};

// A rented machine that is known to work, with the run's limits on it.
struct RentedNode {
  NodeTarget target;
  std::vector<NodeTarget> others;  // the further ones, of a run on several
  Lease lease;
  // Keep it until the job is started: without it another launch would take the machine as idle.
  LeaseLock use;
  bool others_wait = false;  // results of earlier runs on it are not at home
};

// Gives the limits of `lease` to its node, which enforces them from then on, and writes the claim
// into the ledger. Warns on stderr when the machine cannot end its own bill. `self_release`: the
// instance has a key to end itself. `waited_under`: the limits under which results of an earlier
// run wait on the machine; what counted as its results goes on to count. Null: none wait.
absl::Status ClaimNode(CommandContext& context, Ledger& ledger, NodeCalls& calls,
                       const Lease& lease, bool self_release, const RunSpec& spec,
                       const std::string& node_id,
                       const gpuctl::v1::NodeLimits* waited_under = nullptr);

// Lets a further node of the machine that `lease` rents take jobs. It has no limits of its own: it
// ends when the first one does.
absl::Status ClaimFurtherNode(CommandContext& context, NodeCalls& calls, const Lease& lease,
                              const RunSpec& spec);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RENT_CLAIM_NODE_H_
