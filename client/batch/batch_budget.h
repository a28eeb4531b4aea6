// The money of a batch: what its rented machines have cost and may still cost. Pure.
#ifndef GPUCTL_CLIENT_BATCH_BATCH_BUDGET_H_
#define GPUCTL_CLIENT_BATCH_BATCH_BUDGET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/batch/batch_store.h"
#include "provisioning/ledger/lease.h"

namespace gpuctl {

// In USD.
struct BatchMoney {
  double spent = 0;      // at most, by its runs so far
  double may_spend = 0;  // beyond that, within the limits that its machines have
  double committed() const { return spent + may_spend; }
};

// Returns the money of a batch with these attempts, given the leases that their runs used. Of a
// machine the part of its runs counts (DivideSpend), with the idle time after them. While one of
// them holds it (HoldingUses), all that its cost limit still allows counts too: for each batch with
// a run there, because any of them may be the one that stays. An open attempt that is being
// started, or has no machine, counts with at least what was reserved for it. `idle_lease` ("":
// none) is a machine that is about to be used again under a limit of its own, which the caller
// adds: what it may still cost is left out.
BatchMoney MoneyOf(const std::vector<Attempt>& attempts, const std::vector<Lease>& leases,
                   int64_t now_ms, const std::string& idle_lease = "");

// RESOURCE_EXHAUSTED when `committed_usd` and `more_usd` together are above the limit.
absl::Status CheckBudget(double max_cost_usd, double committed_usd, double more_usd);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BATCH_BATCH_BUDGET_H_
