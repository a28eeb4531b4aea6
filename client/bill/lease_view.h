// Formats leases and billing machines for people and scripts. Pure.
#ifndef GPUCTL_CLIENT_BILL_LEASE_VIEW_H_
#define GPUCTL_CLIENT_BILL_LEASE_VIEW_H_

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
// Returns "$1.20/h", the highest price that the lease has had; "no price" for an allocation.
std::string DescribeHighestPrice(const Lease& lease);
// Returns "$1.20" when both bounds look the same, else "$1.20-1.35". `digits` are those behind the
// point; with more than two "<$0.0001" stands for what is not nothing and would look like it.
std::string FormatSpend(const Spend& spend, int digits = 2);
// Returns "idle 10m 00s -> 1h 00m, cost $2.00 -> $3.00": the limits that rise; "" when none does.
std::string DescribeRaise(const LeaseLimits& before, const LeaseLimits& after);
// Returns "raises the limits of its machine vast/i-001: idle 10m 00s -> 1h 00m" for a run that came
// to a machine after others; "" when it raised none, or that is not known.
std::string DescribeRaiseBy(const Lease& lease, absl::string_view run_id);
// Returns "time 6h 00m, cost $4.00, idle 10m 00s, salvage 1d 0h, lease 2h 00m": those limits that
// there are.
std::string DescribeLeaseLimits(const LeaseLimits& limits);
// Returns "8x H100", "H100", "-".
std::string FormatGpus(const std::string& name, int count);
// Returns the name of the run that used the lease last; "-" for none.
std::string RunOf(const std::optional<Lease>& lease);

// Returns the time, in Unix milliseconds, at which a limit will stop a job that runs since
// `started_ms` (0: it has not started, the machine's start counts). The limit is the job's time,
// the cost without the part that grace and salvage need, or the time at which the host takes the
// machine back. 0: no limit.
int64_t JobStopsMs(const Lease& lease, int64_t started_ms, int64_t now_ms);

// What is said of the time that a machine leaves for its results.
enum class ResultsTime {
  kWords,  // "in 9m 00s once its results are home, else in 59m 00s"
  kBrief,  // "in 9m 00s to 59m 00s"
  kNone,   // "in 9m 00s": they are known to be at home
};
// Returns when a machine that is idle since `since_ms` ends itself. "" when its limits are over, or
// it has none.
std::string DescribeIdleEnd(const Lease& lease, int64_t since_ms, int64_t now_ms, ResultsTime told);

// Return JSON objects (docs/json.md).
nlohmann::ordered_json LeaseToJson(const Lease& lease, int64_t now_ms);
nlohmann::ordered_json SeenToJson(const SeenInstance& seen, int64_t now_ms);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BILL_LEASE_VIEW_H_
