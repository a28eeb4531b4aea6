// Opens rental markets by name, with their address, the user's key, and an Http that waits, limits
// and traces.
#ifndef GPUCTL_CLIENT_KEYS_MARKET_ACCESS_H_
#define GPUCTL_CLIENT_KEYS_MARKET_ACCESS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/runs/context.h"
#include "provisioning/http/dated_http.h"
#include "provisioning/market/provider.h"

namespace gpuctl {

struct Market {
  std::string name;
  std::shared_ptr<Provider> provider;
  std::string key_source;  // source of its key, for people
  // How far this computer's clock is ahead of the market's; null: never asked.
  std::shared_ptr<const ClockSkew> skew;
  bool borrowed_key = false;  // MarketKey::borrowed
};

// Opens the markets `names`, or all markets with a key of gpuctl's when `names` is empty: a
// borrowed key counts where its market is named, and so does a cluster. Sends nothing yet.
// UNAUTHENTICATED (exit code 120) when one of `names` has no key, or no market has;
// INVALID_ARGUMENT for a name of no market, or an unusable address; FAILED_PRECONDITION for a key
// that others can read.
absl::StatusOr<std::vector<Market>> OpenMarkets(CommandContext& context,
                                                const std::vector<std::string>& names);

// Opens one market with a key that is not stored.
absl::StatusOr<Market> OpenMarketWithKey(CommandContext& context, absl::string_view name,
                                         const std::string& key);

// Returns $GPUCTL_<MARKET>_URL or the market's own address; "" for kClusterProvider. The key is
// sent there, so INVALID_ARGUMENT unless it is https, or http on this machine.
absl::StatusOr<std::string> MarketUrl(absl::string_view name);

// Returns `status` of a request to a market, with its exit code and hint.
absl::Status ExplainMarketError(const absl::Status& status, absl::string_view market);

// Returns OK for the name of a market or of kClusterProvider, else INVALID_ARGUMENT with the
// nearest valid name.
absl::Status CheckMarketName(absl::string_view name);

// Returns the page where the market's users enter the ssh keys that its gateway takes; "" where
// requests give machines their keys.
absl::string_view SshKeysPage(absl::string_view market);
// Returns what the user of such a market has to do once, with the line of gpuctl's public key.
std::string AskForSshKey(absl::string_view market, absl::string_view public_key);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_KEYS_MARKET_ACCESS_H_
