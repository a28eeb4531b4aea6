#include "client/batch/batch_budget.h"

#include <algorithm>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "client/base/quantity.h"

namespace gpuctl {
namespace {

// Sums of doubles are off by less than this part of a cent.
constexpr double kRounding = 1e-9;

}  // namespace

BatchMoney MoneyOf(const std::vector<Attempt>& attempts, const std::vector<Lease>& leases,
                   int64_t now_ms, const std::string& idle_lease) {
  struct OfRun {
    double committed = 0;
    bool on_machine = false;  // an open machine is used by it last
  };
  BatchMoney money;
  std::map<std::string, OfRun> runs;
  for (const Attempt& attempt : attempts) runs[attempt.run_id];
  constexpr int64_t kEver = std::numeric_limits<int64_t>::max();
  for (const Lease& lease : leases) {
    const SpendParts parts = DivideSpend(lease, 0, kEver, now_ms);
    for (size_t i = 0; i < lease.uses.size(); ++i) {
      const auto run = runs.find(lease.uses[i].run_id);
      if (run == runs.end()) continue;
      const SpendParts::Part& part = parts.of_uses[i];
      const double spent = part.own.high_usd + part.idle.high_usd;
      money.spent += spent;
      run->second.committed += spent;
    }
    if (!lease.open() || lease.lease_id == idle_lease) continue;
    // The last one of the batch that holds the machine stands for all that it may still cost.
    auto holder = runs.end();
    for (const size_t use : HoldingUses(lease)) {
      const auto run = runs.find(lease.uses[use].run_id);
      if (run != runs.end()) holder = run;
    }
    if (holder == runs.end()) continue;
    const double rest = std::max(0.0, lease.limits.cost_usd - SpentOn(lease, now_ms).high_usd);
    money.may_spend += rest;
    holder->second.committed += rest;
    // It pays for all runs that share the machine.
    for (const LeaseUse& use : lease.uses) {
      if (const auto run = runs.find(use.run_id); run != runs.end()) run->second.on_machine = true;
    }
  }
  for (const Attempt& attempt : attempts) {
    const OfRun& run = runs[attempt.run_id];
    // While it is being started another machine may take the place of a bad one.
    if (!attempt.open || (run.on_machine && !attempt.starting)) continue;
    money.may_spend += std::max(0.0, attempt.reserved_usd - run.committed);
  }
  return money;
}

absl::Status CheckBudget(double max_cost_usd, double committed_usd, double more_usd) {
  if (committed_usd + more_usd <= max_cost_usd + kRounding) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("--max-cost ", FormatUsd(max_cost_usd), ": ", FormatUsd(committed_usd),
                   " are spent or promised, and this run may cost ", FormatUsd(more_usd)));
}

}  // namespace gpuctl
