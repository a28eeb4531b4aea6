// Reconciliation: the instances that bill, according to the providers, compared with the ledger.
#ifndef GPUCTL_PROVISIONING_RENTAL_RECONCILE_H_
#define GPUCTL_PROVISIONING_RENTAL_RECONCILE_H_

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/ledger/listing.h"
#include "provisioning/market/provider.h"
#include "provisioning/rental/rental.h"

namespace gpuctl {

// The difference between this computer's clock and a market's from which on no time is judged. A
// clock that is set by the network is right to a second.
inline constexpr absl::Duration kClockIsWrong = absl::Minutes(10);

struct ReconcileMarket {
  std::string name;
  Provider* provider = nullptr;  // null: it cannot be asked
  absl::Status unusable;         // why not
  // Returns how far this computer's clock is ahead of the market's, by the market's last answer;
  // absent, or an empty function: not known.
  std::function<std::optional<absl::Duration>()> skew = nullptr;
};

struct SeenInstance {
  std::string provider;
  ListedInstance listed;
  std::optional<Lease> lease;     // from the ledger; only for our own instances
  std::optional<PriceRise> rise;  // it waits for an answer; only for our own instances
  bool due = false;               // true: it is a leak because its limits have passed
  // True: it is a leak by the ledger or the market alone, and its node may know better.
  bool ask_node = false;
  bool left_behind = false;  // true: it is a leak because its run goes on elsewhere
};

// A question about a claimed machine that the ledger wants.
struct DueQuestion {
  const Provider* provider = nullptr;
  Lease lease;
};

// A function that returns for each of `machines` the reason to end it: its limits have passed and
// it does not end itself. "" when it should not end. It may take as long as the slowest machine's
// answer.
using WhyDue = std::function<std::vector<std::string>(const std::vector<DueQuestion>& machines)>;

// A question about an instance that no node has claimed, by this ledger, or that its market calls
// out of order. A ledger that was restored from a backup, and a market, may be wrong about that.
struct ServesQuestion {
  const Provider* provider = nullptr;
  Instance instance;
  std::string lease_id;
};

// A function that tells of each of `machines` whether its node serves that lease and has a job, or
// results that are not home. It may take as long as the slowest machine's answer.
using Serves = std::function<std::vector<bool>(const std::vector<ServesQuestion>& machines)>;

// A market whose state is not known now. This never means that nothing bills there.
struct UnknownMarket {
  std::string name;
  absl::Status cause;
  std::vector<Lease> leases;  // those that may bill there
};

struct PriceNote {
  Lease lease;  // with the new price
  double before_usd_per_hour = 0;
};

struct Reconciliation {
  std::vector<SeenInstance> instances;  // all that bill, whoever owns them
  // Intents whose outcome is not known yet, because a market's list may lag behind a rent.
  std::vector<Lease> unsettled;
  std::vector<UnknownMarket> unknown;
  // The changes found by this reconciliation.
  std::vector<Lease> not_created;
  std::vector<Lease> ended_outside;
  // Those that bill although the ledger knew better: their market had called them gone, or a launch
  // had claimed them and the ledger is older than that.
  std::vector<Lease> back;
  std::vector<PriceNote> price_changes;
  // Markets by whose clock this computer's is wrong, and by how much (positive: ahead). Nothing of
  // theirs was judged by a time.
  std::vector<std::pair<std::string, absl::Duration>> wrong_clock;
  // Not OK: something of this could not be written down, and is found out again by the next one.
  absl::Status unwritten;
  // Markets that did not tell their price rises, or what they have charged for traffic; everything
  // else about them is known.
  std::vector<UnknownMarket> rises_unknown;
  std::vector<UnknownMarket> charges_unknown;

  std::vector<const SeenInstance*> Leaks() const;
  // Those that are ours by their names and that this ledger does not know.
  std::vector<const SeenInstance*> Lost() const;
  // Those of ours that bill and that their market calls out of order. They become leaks after their
  // salvage time: until then somebody may fetch results.
  std::vector<const SeenInstance*> Troubled() const;
};

// True when the market calls the instance out of order.
bool IsTroubled(const Instance& instance);

struct ReconcileOptions {
  WhyDue why_due;  // empty: the cost is the only limit that is checked
  // Ids of owners whose machines are judged like our own: of a ledger that was lost or copied.
  std::set<std::string> also_owners;
  Serves serves = nullptr;  // empty: the ledger's word about claims is believed
  // Returns the run that goes on from this one elsewhere, in words for people; "" when there is
  // none. A machine that is left behind is a leak. Empty: it is not known.
  std::function<std::string(const std::string& run_id)> successor = nullptr;
};

// Lists every market first and then reads the ledger. Leaves locked leases alone. Writes its
// findings and the listings into the ledger. Returns only errors of reading the ledger; a market's
// error is in the result, and so is one of writing. Leases at markets that are not among `markets`
// are unknown.
absl::StatusOr<Reconciliation> Reconcile(Ledger& ledger,
                                         const std::vector<ReconcileMarket>& markets, Clock& clock,
                                         const ReconcileOptions& options = {});

struct ReapedInstance {
  std::string provider;
  Instance instance;
  std::string why;
  absl::Status status;         // not OK: it may still bill; UNAVAILABLE: somebody else is ending it
  std::optional<Lease> lease;  // its state afterwards; absent for a duplicate
};

struct ReapReport {
  std::vector<ReapedInstance> reaped;
  Reconciliation last;  // the last one of this call
};

struct ReapOptions {
  ReconcileOptions reconcile;
  bool wait = true;  // until the open intents are settled, for little more than two minutes
  std::set<InstanceId> lost;  // ids of lost machines that are ended, too
};

// Reconciles and ends every leak. Any number of calls may run at the same time, also beside
// launches.
absl::StatusOr<ReapReport> Reap(Ledger& ledger, const std::vector<ReconcileMarket>& markets,
                                Clock& clock, const RentalHooks& hooks,
                                const ReapOptions& options = {});

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_RENTAL_RECONCILE_H_
