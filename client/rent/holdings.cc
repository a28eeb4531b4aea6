#include "client/rent/holdings.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/paths.h"
#include "common/base/status_macros.h"
#include "provisioning/markets.h"

namespace gpuctl {

Holdings::Holdings(std::unique_ptr<Ledger> ledger, std::vector<Market> markets)
    : ledger_(std::move(ledger)), markets_(std::move(markets)) {
  for (const Market& market : markets_) {
    reconcile_.push_back({market.name, market.provider.get(), absl::OkStatus()});
  }
}

absl::StatusOr<Holdings> Holdings::Open(CommandContext& context) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(std::unique_ptr<Ledger> ledger, Ledger::Open(paths.state_dir, context.clock));
  ASSIGN_OR_RETURN(const std::vector<Lease> open, ledger->List(/*open_only=*/true));
  std::vector<Market> usable;
  std::vector<ReconcileMarket> unusable;
  for (const std::string& name : MarketNames()) {
    absl::StatusOr<std::vector<Market>> market = OpenMarkets(context, {name});
    if (market.ok()) {
      usable.push_back(std::move(market->front()));
      continue;
    }
    const bool needed = std::any_of(open.begin(), open.end(),
                                    [&name](const Lease& l) { return l.provider == name; });
    if (needed || !absl::IsUnauthenticated(market.status())) {
      unusable.push_back({name, nullptr, market.status()});
    }
  }
  if (usable.empty() && unusable.empty()) return OpenMarkets(context, {}).status();
  Holdings holdings(std::move(ledger), std::move(usable));
  holdings.reconcile_.insert(holdings.reconcile_.end(), unusable.begin(), unusable.end());
  return holdings;
}

absl::StatusOr<Provider*> Holdings::Find(absl::string_view name) const {
  for (const ReconcileMarket& market : reconcile_) {
    if (market.name != name) continue;
    if (market.provider == nullptr) return market.unusable;
    return market.provider;
  }
  return WithExitCode(
      WithHint(absl::UnauthenticatedError(absl::StrCat("there is no key for ", name)),
               absl::StrCat("gpuctl login ", name)),
      kExitCredentials);
}

}  // namespace gpuctl
