#include "client/dispatch/join_cost.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/base/quantity.h"
#include "client/batch/batch_budget.h"
#include "client/rent/lease_limits.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

// True when a run of these attempts holds the machine.
bool Holds(const Lease& lease, const std::vector<Attempt>& attempts) {
  const std::vector<size_t> holding = HoldingUses(lease);
  return std::any_of(holding.begin(), holding.end(), [&](size_t use) {
    return std::any_of(attempts.begin(), attempts.end(), [&](const Attempt& attempt) {
      return attempt.run_id == lease.uses[use].run_id;
    });
  });
}

}  // namespace

JoinCost CostOfJoining(const RunSpec& spec, const Lease& lease,
                       const std::vector<Attempt>& attempts, int64_t now_ms) {
  const double spent_usd = SpentOn(lease, now_ms).high_usd;
  const LeaseLimits needs = WithSalvageOfOthers(AgreeLimits(spec, lease.usd_per_hour(), spent_usd),
                                                lease.limits, lease.usd_per_hour(), spent_usd);
  JoinCost cost;
  cost.limits = lease.limits;
  cost.more_usd = std::max(0.0, needs.cost_usd - lease.limits.cost_usd);
  cost.limits.cost_usd += cost.more_usd;
  cost.limits.time_s = std::max(cost.limits.time_s, needs.time_s);
  cost.limits.idle_s = std::max(cost.limits.idle_s, needs.idle_s);
  cost.limits.salvage_s = std::max(cost.limits.salvage_s, needs.salvage_s);
  cost.limits.contact_s = std::max(cost.limits.contact_s, needs.contact_s);
  cost.held = Holds(lease, attempts);
  cost.reserved_usd = cost.held ? cost.more_usd : std::max(0.0, cost.limits.cost_usd - spent_usd);
  return cost;
}

absl::StatusOr<std::vector<Lease>> LeasesOf(Ledger& ledger, const std::vector<Attempt>& attempts) {
  std::vector<std::string> run_ids;
  for (const Attempt& attempt : attempts) run_ids.push_back(attempt.run_id);
  return ledger.OpenOrOf(run_ids);
}

absl::Status CheckOthersOn(BatchStore& batches, Ledger& ledger, const Lease& lease,
                           const std::string& batch_id, double more_usd, int64_t now_ms) {
  if (more_usd <= 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<Batch> all, batches.List(/*open_only=*/true));
  for (const Batch& other : all) {
    if (other.batch_id == batch_id || !other.max_cost_usd.has_value()) continue;
    ASSIGN_OR_RETURN(const std::vector<Attempt> attempts, batches.Attempts(other.batch_id));
    if (!Holds(lease, attempts)) continue;
    ASSIGN_OR_RETURN(const std::vector<Lease> leases, LeasesOf(ledger, attempts));
    const absl::Status pays =
        CheckBudget(*other.max_cost_usd, MoneyOf(attempts, leases, now_ms).committed(), more_usd);
    if (pays.ok()) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat("the machine's cost limit would rise by ", FormatUsd(more_usd), ", and batch ",
                     other.name, " on it has --max-cost ", FormatUsd(*other.max_cost_usd)));
  }
  return absl::OkStatus();
}

}  // namespace gpuctl
