// What bills, by the providers' word, compared with what the ledger wants.
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
  absl::Status unusable;         // why not
};

struct SeenInstance {
  std::string provider;
  ListedInstance listed;
  std::optional<Lease> lease;     // the ledger's; only of our own instances
  std::optional<PriceRise> rise;  // one that waits for an answer; only of our own instances
  bool due = false;               // true: it is a leak because its limits are over
};

// A claimed machine that the ledger wants.
struct DueQuestion {
  const Provider* provider = nullptr;
  Lease lease;
};

// Returns for each of `machines` why it should end, because its limits are over and it does not end
// itself; "" when it should not. May take as long as the slowest machine's answer.
using WhyDue = std::function<std::vector<std::string>(const std::vector<DueQuestion>& machines)>;

// A market of which nothing is known now. This never means that nothing bills there.
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
  std::vector<SeenInstance> instances;  // all that bills, whoever owns it
  // Intents whose outcome only time tells, because a market may not list yet what was just rented.
  std::vector<Lease> unsettled;
  std::vector<UnknownMarket> unknown;
  // The findings of this reconciliation.
  std::vector<Lease> not_created;
  std::vector<Lease> ended_outside;
  std::vector<PriceNote> price_changes;
  // Markets that did not say whether prices will rise; all else is known of them.
  std::vector<UnknownMarket> rises_unknown;

  std::vector<const SeenInstance*> Leaks() const;
};

// Lists every market first and then reads the ledger. Leaves alone leases that somebody is at work
// on. Writes its findings and the listings into the ledger. Returns an error of the ledger only; a
// market's error is in the result. Leases at markets that are not among `markets` are unknown.
// Without `why_due` it looks at no limit but the cost.
absl::StatusOr<Reconciliation> Reconcile(Ledger& ledger,
                                         const std::vector<ReconcileMarket>& markets, Clock& clock,
                                         const WhyDue& why_due = nullptr);

struct ReapedInstance {
  std::string provider;
  Instance instance;
  std::string why;
  absl::Status status;         // not OK: it may still bill; UNAVAILABLE: somebody else is ending it
  std::optional<Lease> lease;  // as it is afterwards; absent for a duplicate
};

struct ReapReport {
  std::vector<ReapedInstance> reaped;
  Reconciliation last;  // the last one of this call
};

// Ends every leak that reconciling finds. With `wait` it goes on until the open intents are
// settled, too, for little more than two minutes. Any number of calls may run at once, and beside
// launches.
absl::StatusOr<ReapReport> Reap(Ledger& ledger, const std::vector<ReconcileMarket>& markets,
                                Clock& clock, const RentalHooks& hooks, bool wait,
                                const WhyDue& why_due = nullptr);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_RENTAL_RECONCILE_H_
