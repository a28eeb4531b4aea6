// What the providers say that bills, against what the ledger wants.
#ifndef GPUCTL_PROVISIONING_RENTAL_RECONCILE_H_
#define GPUCTL_PROVISIONING_RENTAL_RECONCILE_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/ledger/listing.h"
#include "provisioning/market/provider.h"
#include "provisioning/rental/rental.h"

namespace gpuctl {

struct ReconcileMarket {
  std::string name;
  Provider* provider = nullptr;  // null: it cannot be asked
  absl::Status unusable;         // and why
};

struct SeenInstance {
  std::string provider;
  ListedInstance listed;
  std::optional<Lease> lease;     // the ledger's, for those of ours
  std::optional<PriceRise> rise;  // one that waits for an answer, for those of ours
  bool due = false;               // a leak because its limits are over
};

// A claimed machine that the ledger wants.
struct DueQuestion {
  const Provider* provider = nullptr;
  Lease lease;
};

// Why each of them should end, in their order: its limits are over, and it does not end itself; ""
// when it should not. May take as long as the slowest machine's answer.
using WhyDue = std::function<std::vector<std::string>(const std::vector<DueQuestion>& machines)>;

// A market of which nothing is known now. Never the same as one where nothing bills.
struct UnknownMarket {
  std::string name;
  absl::Status cause;
  std::vector<Lease> leases;  // what may bill there
};

struct PriceNote {
  Lease lease;  // with the new price
  double before_usd_per_hour = 0;
};

struct Reconciliation {
  std::vector<SeenInstance> instances;  // all that bills, whose ever it is
  // Intents whose outcome only time tells: what was just asked for may not be listed yet.
  std::vector<Lease> unsettled;
  std::vector<UnknownMarket> unknown;
  // What this reconciliation found out.
  std::vector<Lease> not_created;
  std::vector<Lease> ended_outside;
  std::vector<PriceNote> price_changes;
  // Markets that did not say whether prices will rise there; all else is known of them.
  std::vector<UnknownMarket> rises_unknown;

  std::vector<const SeenInstance*> Leaks() const;
};

// Lists every market first and reads the ledger then; leaves leases alone that somebody is at work
// on. Writes down what it finds out, and the listings. An error is one of the ledger's: a market's
// own is in the result. Leases at markets that are not among `markets` are unknown.
// Without `why_due` nobody's limits are looked at but the cost.
absl::StatusOr<Reconciliation> Reconcile(Ledger& ledger,
                                         const std::vector<ReconcileMarket>& markets, Clock& clock,
                                         const WhyDue& why_due = nullptr);

struct ReapedInstance {
  std::string provider;
  Instance instance;
  std::string why;
  absl::Status status;         // not OK: it may still bill; UNAVAILABLE: somebody else is ending it
  std::optional<Lease> lease;  // as it then is; absent for a duplicate
};

struct ReapReport {
  std::vector<ReapedInstance> reaped;
  Reconciliation last;  // what was found the last time
};

// Ends every leak that reconciling finds. With `wait`, goes on until the open intents are settled
// too, a little over two minutes at most. Any number of these may run at once, beside launches.
absl::StatusOr<ReapReport> Reap(Ledger& ledger, const std::vector<ReconcileMarket>& markets,
                                Clock& clock, const RentalHooks& hooks, bool wait,
                                const WhyDue& why_due = nullptr);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_RENTAL_RECONCILE_H_
