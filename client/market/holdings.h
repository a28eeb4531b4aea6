// What this laptop rents: the ledger where that is written down, and the markets that can be asked
// about it.
#ifndef GPUCTL_CLIENT_MARKET_HOLDINGS_H_
#define GPUCTL_CLIENT_MARKET_HOLDINGS_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/market/market_access.h"
#include "client/runs/context.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/market/provider.h"
#include "provisioning/rental/reconcile.h"

namespace gpuctl {

// A verb makes one and hands it down; nothing else opens the ledger. Used by one thread, as the
// ledger is: what works on a thread of its own has a Holdings of its own.
class Holdings {
 public:
  // Opens the markets of these names, or all with a key when there are none (see OpenMarkets).
  using MarketOpener =
      std::function<absl::StatusOr<std::vector<Market>>(const std::vector<std::string>& names)>;

  // Opens nothing yet. `context` outlives it. A test has markets of its own opened.
  explicit Holdings(CommandContext& context, MarketOpener open_markets = nullptr);
  // Takes what a test has at hand.
  Holdings(CommandContext& context, std::unique_ptr<Ledger> ledger, std::vector<Market> markets);

  // Returns the ledger; makes it where there is none. It lives as long as this.
  absl::StatusOr<Ledger*> OpenLedger();
  // Returns the ledger; null where nothing was ever rented.
  absl::StatusOr<Ledger*> FindLedger();
  // Returns the newest lease that the run used; absent when it used none.
  absl::StatusOr<std::optional<Lease>> LeaseOf(absl::string_view run_id);

  // Opens markets that the caller keeps, or says why not, as OpenMarkets does.
  absl::StatusOr<std::vector<Market>> Open(const std::vector<std::string>& names) const {
    return open_markets_(names);
  }

  // Opens every market with a key, and those where a lease is open, at the first call that
  // succeeds. UNAUTHENTICATED when there is neither.
  absl::Status OpenAllMarkets();
  // These come after OpenAllMarkets.
  Ledger& ledger() { return *ledger_; }
  const std::vector<ReconcileMarket>& markets() const { return reconcile_; }
  // Returns the market's provider, or why there is none.
  absl::StatusOr<Provider*> Find(absl::string_view name) const;

 private:
  CommandContext* context_;
  MarketOpener open_markets_;
  std::unique_ptr<Ledger> ledger_;
  std::vector<Market> markets_;
  std::vector<ReconcileMarket> reconcile_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_MARKET_HOLDINGS_H_
