// The limits of a lease, as shown before the user accepts the price.
#ifndef GPUCTL_CLIENT_RENT_LEASE_LIMITS_H_
#define GPUCTL_CLIENT_RENT_LEASE_LIMITS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/spec/run_spec.h"
#include "common/job/lifecycle.h"
#include "provisioning/ledger/lease.h"

namespace gpuctl {

// The time between the rent of a machine and the start of its job that a cost limit of gpuctl's own
// pays for: boot, checks and copies do not shorten the job's running time.
inline constexpr absl::Duration kStartAllowance = absl::Minutes(20);

// Returns how long a machine keeps results that are not home, unless the cost shortens it. Where
// `spec` does not say: four times the running time, at least two hours and at most a day.
absl::Duration SalvageOf(const RunSpec& spec);

// Returns how long a machine for `spec` lives at most, unless the cost ends it: start, running
// time, grace and salvage.
absl::Duration MostLifetime(const RunSpec& spec);

// True when the host of a machine takes it back at `ends_ms` (0: it does not), before a job that
// begins now has had its time and its results their salvage. Times are Unix milliseconds.
bool EndsTooSoon(const RunSpec& spec, int64_t ends_ms, int64_t now_ms);

// Returns the limits that `spec` asks for at this price; each has a value. Without a cost in
// `spec`, the cost limit pays for start, time, grace and salvage together. With a cost, salvage is
// at most what a third of the cost pays for. `spent_usd` is what a reused machine has cost already;
// it is added to the cost limit.
LeaseLimits AgreeLimits(const RunSpec& spec, double usd_per_hour, double spent_usd = 0);

// Returns `needs`, the limits for a further run on a machine that has cost `spent_usd`, when
// results of earlier runs there keep what was promised for them in `had`: the machine's limits hold
// their salvage as far as what is left of their cost pays for it, and that money beside the run's
// own. A salvage that is not paid for would end the job at once, because the node reserves it.
LeaseLimits WithSalvageOfOthers(LeaseLimits needs, const LeaseLimits& had, double usd_per_hour,
                                double spent_usd);

// Returns `spec`, which is on `machines` machines, for one of them: with its share of the cost.
RunSpec SpecOfOne(const RunSpec& spec, int machines);

// Returns the limits at this price under a cost that was agreed already, at another offer's price:
// a dearer machine gets less salvage. RESOURCE_EXHAUSTED when the agreed cost does not pay for
// start, time, grace and ten minutes of salvage, or a cost of the user's for ten minutes at all.
absl::StatusOr<LeaseLimits> LimitsWithin(const RunSpec& spec, double usd_per_hour,
                                         double agreed_usd);

// Returns what is left of the cost limit of `lease`, in USD, for the machine that replaces it.
// RESOURCE_EXHAUSTED when that pays for less than ten minutes of such a machine;
// FAILED_PRECONDITION when the lease is open, because two machines could bill at once.
absl::StatusOr<double> CostLeftOver(const Lease& lease, int64_t now_ms);

// Returns what is left of a run's time limit after it has run for `used` on earlier machines.
// RESOURCE_EXHAUSTED when that is less than a minute.
absl::StatusOr<absl::Duration> TimeLeftOver(absl::Duration time_limit, absl::Duration used);

// Returns how long the attempts of a job ran. An attempt whose end nobody saw counts until
// `until_ms`. When no event is known at all, the time counts from `accepted_ms` (0: it never
// began). Times are Unix milliseconds.
absl::Duration TimeUsed(const Lifecycle& lifecycle, int64_t accepted_ms, int64_t until_ms);

// Returns LeaseUse::gpus of a run: what it has of a machine beside others.
int GpusOfUse(const RunSpec& spec);

// The most that a rented machine may cost, in USD, by what it is for.
struct CostParts {
  double start_usd = 0;    // kStartAllowance
  double run_usd = 0;      // the running time, and the grace
  double salvage_usd = 0;  // the time in which results wait to be fetched
  double idle_usd = 0;     // the part of that for which it is idle once they are home
  double spare_usd = 0;    // what a cost of the user's allows beside all that
};

// Returns the parts of limits.cost_usd at that price, for a new machine and a run with this grace.
CostParts PartsOfCost(const LeaseLimits& limits, double usd_per_hour, absl::Duration grace);

// Returns "$0.10 to start (up to 20m 00s), $0.31 to run, $1.20 while results wait for you (10m 00s
// idle once they are home: $0.05)": the parts of limits.cost_usd at that price, for all plans.
// Where that cost is more than these need, ", $0.54 to spare" stands behind them.
std::string DescribeCostParts(const LeaseLimits& limits, double usd_per_hour, absl::Duration grace);

// Returns what people are told of the limits, a line for each, for `spec` at that price:
// "running   6h 00m, then 1m 00s to save", "results   …", "cost      $20.00 at most: …". The word
// in front has ten columns.
std::vector<std::string> DescribeLimits(const RunSpec& spec, const LeaseLimits& limits,
                                        double usd_per_hour);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RENT_LEASE_LIMITS_H_
