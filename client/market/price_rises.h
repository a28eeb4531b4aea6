// Higher prices that owners of rented machines announce: what to say about them, and to whom.
#ifndef GPUCTL_CLIENT_MARKET_PRICE_RISES_H_
#define GPUCTL_CLIENT_MARKET_PRICE_RISES_H_

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/rental/reconcile.h"

namespace gpuctl {

// What the run that uses the machine may cost an hour, as it was launched (--max-price); absent:
// it named no limit, or the run is not known here (`store` may be null).
std::optional<double> MaxPriceOf(RunStore* store, const Lease& lease);

// True when accepting would, or may, cost more than `max_usd_per_hour`.
bool IsAbove(const PriceRise& rise, std::optional<double> max_usd_per_hour);

// "vast/123 (run fox): its price rises from $0.31 to at most $0.62/h on …", with what can be done.
std::string DescribePriceRise(const Lease& lease, const PriceRise& rise,
                              std::optional<double> max_usd_per_hour, int64_t now_ms);
// What is known to happen to the machine of a rise that was refused.
std::string AfterRefusal(const PriceRise& rise);

// A line to `tell` for each that the ledger knows of the leases that `run_id` uses; "": all.
// Nothing is asked of anybody.
void TellStoredPriceRises(Holdings& holdings, RunStore& store, absl::string_view run_id,
                          int64_t now_ms, const std::function<void(absl::string_view)>& tell);

// Asks the markets where something of ours bills, and stores what they say.
absl::Status RefreshPriceRises(CommandContext& context, Holdings& holdings);

// One JSON object (docs/json.md).
nlohmann::ordered_json PriceRiseToJson(const Lease& lease, const PriceRise& rise,
                                       std::optional<double> max_usd_per_hour);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_MARKET_PRICE_RISES_H_
