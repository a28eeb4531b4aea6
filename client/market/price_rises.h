// Messages about higher prices that owners of rented machines announce.
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

// Returns the price limit (--max-price), in USD/h, of the run that uses the machine. Absent when it
// has no limit, or when the run is not known here (`store` may be null).
std::optional<double> MaxPriceOf(RunStore* store, const Lease& lease);

// True when the new price would, or may, exceed `max_usd_per_hour`.
bool IsAbove(const PriceRise& rise, std::optional<double> max_usd_per_hour);

// Returns "vast/123 (run fox): its price rises from $0.31 to at most $0.62/h on …", with the
// possible answers.
std::string DescribePriceRise(const Lease& lease, const PriceRise& rise,
                              std::optional<double> max_usd_per_hour, int64_t now_ms);
// Returns the known consequence of a refusal for the machine.
std::string AfterRefusal(const PriceRise& rise);

// Passes a line to `tell` for each rise in the ledger for the leases that `run_id` uses ("": all
// leases). Asks no market.
void TellStoredPriceRises(Holdings& holdings, RunStore& store, absl::string_view run_id,
                          int64_t now_ms, const std::function<void(absl::string_view)>& tell);

// Asks the markets with open leases for their price rises, and stores them in the ledger.
absl::Status RefreshPriceRises(Holdings& holdings);

// Returns one JSON object (docs/json.md).
nlohmann::ordered_json PriceRiseToJson(const Lease& lease, const PriceRise& rise,
                                       std::optional<double> max_usd_per_hour);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_MARKET_PRICE_RISES_H_
