// Leases and what bills, as people and scripts read them. Pure.
#ifndef GPUCTL_CLIENT_MARKET_LEASE_VIEW_H_
#define GPUCTL_CLIENT_MARKET_LEASE_VIEW_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "provisioning/ledger/lease.h"
#include "provisioning/rental/reconcile.h"

namespace gpuctl {

// "$2.50"; "?" where it is not known.
std::string FormatUsdPerHour(double usd_per_hour);
// "$1.20" when both bounds show as the same, else "$1.20-1.35".
std::string FormatSpend(const Spend& spend);
// "8x H100", "H100", "-".
std::string FormatGpus(const std::string& name, int count);
// The name of the run that used it last; "-" for none.
std::string RunOf(const std::optional<Lease>& lease);

// When a limit will stop the job that runs since `started_ms` (0: it has not started, the machine's
// beginning counts): its time, or the cost less what the grace and the salvage of its results take.
// 0: no limit.
int64_t JobStopsMs(const Lease& lease, int64_t started_ms, int64_t now_ms);

// JSON objects (docs/json.md).
nlohmann::ordered_json LeaseToJson(const Lease& lease, int64_t now_ms);
nlohmann::ordered_json SeenToJson(const SeenInstance& seen, int64_t now_ms);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_MARKET_LEASE_VIEW_H_
