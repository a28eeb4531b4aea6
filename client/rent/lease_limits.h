// The limits of a lease, as they are shown before the price is accepted.
#ifndef GPUCTL_CLIENT_RENT_LEASE_LIMITS_H_
#define GPUCTL_CLIENT_RENT_LEASE_LIMITS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/spec/run_spec.h"
#include "common/job/lifecycle.h"
#include "provisioning/ledger/lease.h"

namespace gpuctl {

// What `spec` asks for at this price; none of it is unlimited. Without a cost of its own: that of
// time, grace and salvage together. An explicit cost shortens salvage to what a third of it pays
// for. `spent_usd`, what a machine that is used again has cost already, comes on top.
LeaseLimits AgreeLimits(const RunSpec& spec, double usd_per_hour, double spent_usd = 0);

// What is left of `lease`'s cost limit for the machine that takes its place. RESOURCE_EXHAUSTED
// when that pays for less than ten minutes of one like it; FAILED_PRECONDITION when the lease is
// open, so that the two could bill at once.
absl::StatusOr<double> CostLeftOver(const Lease& lease, int64_t now_ms);

// What is left of a run's time limit, after it has run for `used` on the machines before.
// RESOURCE_EXHAUSTED when that is less than a minute.
absl::StatusOr<absl::Duration> TimeLeftOver(absl::Duration time_limit, absl::Duration used);

// How long the attempts of a job ran; one whose end nobody saw, until `until_ms`. One whose
// beginning nobody saw either, from `accepted_ms` on (0: it never began). Unix milliseconds.
absl::Duration TimeUsed(const Lifecycle& lifecycle, int64_t accepted_ms, int64_t until_ms);

// Whether the market, or nobody knows who, ended that machine.
bool WasTakenAway(const Lease& lease);

// One line for people, for `spec` at that price: "6h 00m running time, $20.00 at most, …".
std::string DescribeLimits(const RunSpec& spec, const LeaseLimits& limits, double usd_per_hour);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RENT_LEASE_LIMITS_H_
