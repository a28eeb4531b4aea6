// From the name of a rental market to one that can be asked: its address, the user's key, and the
// Http that waits, limits and traces.
#ifndef GPUCTL_CLIENT_MARKET_MARKET_ACCESS_H_
#define GPUCTL_CLIENT_MARKET_MARKET_ACCESS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/runs/context.h"
#include "provisioning/market/provider.h"

namespace gpuctl {

struct Market {
  std::string name;
  std::unique_ptr<Provider> provider;
  std::string key_source;  // where its key was found, for people
};

// The markets `names`, or all with a key when there are none. UNAUTHENTICATED (exit code 120) when
// one of `names` has no key, or none of all has; INVALID_ARGUMENT for a name that is no market's or
// an address that cannot be used; FAILED_PRECONDITION for a key that others can read. Nothing is
// sent yet.
absl::StatusOr<std::vector<Market>> OpenMarkets(CommandContext& context,
                                                const std::vector<std::string>& names);

// One market with a key that is not stored.
absl::StatusOr<Market> OpenMarketWithKey(CommandContext& context, absl::string_view name,
                                         const std::string& key);

// $GPUCTL_<MARKET>_URL or the market's own address. A key travels there: INVALID_ARGUMENT unless it
// is https, or http on this machine.
absl::StatusOr<std::string> MarketUrl(absl::string_view name);

// `status` of a request to a market, with the exit code and the hint that belong to it.
absl::Status ExplainMarketError(const absl::Status& status, absl::string_view market);

// INVALID_ARGUMENT naming the nearest right one.
absl::Status CheckMarketName(absl::string_view name);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_MARKET_MARKET_ACCESS_H_
