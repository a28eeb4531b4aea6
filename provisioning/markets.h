// The rental markets, and the making of their adapters.
#ifndef GPUCTL_PROVISIONING_MARKETS_H_
#define GPUCTL_PROVISIONING_MARKETS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "provisioning/http/http.h"
#include "provisioning/http/rate_bucket.h"
#include "provisioning/market/provider.h"
#include "provisioning/market/provider_access.h"

namespace gpuctl {

struct MarketFacts {
  std::string name;       // as in run files and labels: "runpod"
  std::string title;      // for people: "Runpod"
  std::string base_url;   // scheme and host
  std::string keys_page;  // the page where its users make keys
  RateLimits limits;
  // A variable in which the market's own programs have the key; empty: none that gpuctl reads. Jobs
  // may need it, too, so it is no secret from them.
  std::string key_variable = {};
  // For a market whose machines are behind one ssh gateway: the page where its users enter the
  // public keys that the gateway takes, because no request can. Empty elsewhere.
  std::string ssh_keys_page = {};
};

// The provider whose machines are allocations of a cluster. It has no key and no address of its own
// (provisioning/slurm).
inline constexpr char kClusterProvider[] = "slurm";

// Returns all markets, in the order in which they are listed.
const std::vector<MarketFacts>& AllMarkets();
std::vector<std::string> MarketNames();
// Returns the market of that name, or nullptr.
const MarketFacts* FindMarket(absl::string_view name);

// Returns 16 hex digits that differ from key to key and do not tell the key (Provider::key_print);
// "" for no key.
std::string PrintOfKey(absl::string_view key);

// True for a provider whose machines have a beginning and an end, and a lease: a market, or
// kClusterProvider.
bool IsRental(absl::string_view provider);
// Returns the names of all of them.
std::vector<std::string> RentalNames();

// True for an allocation that serves one run alone and ends itself after it: a task of an array.
bool EndsWithItsRun(absl::string_view provider, absl::string_view instance_id);

// Returns the adapter of a market. INVALID_ARGUMENT when there is none of that name.
absl::StatusOr<std::unique_ptr<Provider>> MakeMarket(absl::string_view name, ProviderAccess access,
                                                     std::shared_ptr<Http> http);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_MARKETS_H_
