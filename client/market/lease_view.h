// Formats leases and billing machines for people and scripts. Pure.
#ifndef GPUCTL_CLIENT_MARKET_LEASE_VIEW_H_
#define GPUCTL_CLIENT_MARKET_LEASE_VIEW_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "provisioning/ledger/lease.h"
#include "provisioning/rental/reconcile.h"

namespace gpuctl {

// Returns a sentence for people about a host that takes its machine back before the run has had its
// time and its results their salvage; "" when it does not.
std::string DescribeEarlyEnd(const Lease& lease, int64_t now_ms);

// Returns "$2.50"; "?" when the price is not known.
std::string FormatUsdPerHour(double usd_per_hour);
// Return its price now; "$0.00" when nothing of it bills.
std::string FormatUsdPerHour(const Lease& lease);
std::string FormatUsdPerHour(const Instance& instance);
// Returns "$1.20" when both bounds look the same, else "$1.20-1.35".
std::string FormatSpend(const Spend& spend);
// Returns "8x H100", "H100", "-".
std::string FormatGpus(const std::string& name, int count);
// Returns the name of the run that used the lease last; "-" for none.
std::string RunOf(const std::optional<Lease>& lease);

// Returns the time, in Unix milliseconds, at which a limit will stop a job that runs since
// `started_ms` (0: it has not started, the machine's start counts). The limit is the job's time,
// the cost without the part that grace and salvage need, or the time at which the host takes the
// machine back. 0: no limit.
int64_t JobStopsMs(const Lease& lease, int64_t started_ms, int64_t now_ms);

// Returns the cost of a run for its panel: "$2.50/h, $1.20 of $20.00 spent, stops in 4h 05m and
// then bills on until idle for 10m 00s". `started_ms` is as above; -1: the job is over, and the
// machine bills on.
std::string CostLine(const Lease& lease, const std::string& run_id, int64_t started_ms,
                     int64_t now_ms);

// Returns when a machine that is idle since `since_ms` ends itself: "in 9m 00s once its results are
// home, else in 59m 00s"; with `brief`, "in 9m 00s to 59m 00s". "" when its limits are over, or it
// has none.
std::string DescribeIdleEnd(const Lease& lease, int64_t since_ms, int64_t now_ms, bool brief);

// Adds to a run's JSON what it cost on this lease, when a limit stops it, and the lease.
// `started_ms` is as above.
void AddRunCost(const Lease& lease, const std::string& run_id, int64_t started_ms, int64_t now_ms,
                nlohmann::ordered_json& run);

// Return JSON objects (docs/json.md).
nlohmann::ordered_json LeaseToJson(const Lease& lease, int64_t now_ms);
nlohmann::ordered_json SeenToJson(const SeenInstance& seen, int64_t now_ms);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_MARKET_LEASE_VIEW_H_
