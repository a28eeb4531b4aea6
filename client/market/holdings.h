// The machines that this laptop rents: the ledger that records them, and the markets to ask about
// them.
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
#include "absl/time/time.h"
#include "client/keys/market_access.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/market/provider.h"
#include "provisioning/rental/reconcile.h"

namespace gpuctl {

// A verb makes one and hands it down; nothing else opens the ledger. It belongs to one thread, like
// the ledger; another thread makes a Holdings of its own.
class Holdings {
 public:
  // Opens the markets of these names, or all with a key when there are none (see OpenMarkets).
  using MarketOpener =
      std::function<absl::StatusOr<std::vector<Market>>(const std::vector<std::string>& names)>;

  // Opens nothing yet. `context` outlives it. A test gives its own `open_markets`; null means
  // OpenMarkets.
  explicit Holdings(CommandContext& context, MarketOpener open_markets = nullptr);
  // Takes a ledger and markets that a test made.
  Holdings(CommandContext& context, std::unique_ptr<Ledger> ledger, std::vector<Market> markets);

  // From now on a ledger that cannot be written, because the disk is full or read-only, is replaced
  // by a copy in memory, and the user is told. For verbs that end bills.
  void OnlyEnds() { only_ends_ = true; }

  // Returns the ledger; creates it when there is none. It lives as long as this object.
  absl::StatusOr<Ledger*> OpenLedger();
  // Returns the ledger; null when nothing was ever rented.
  absl::StatusOr<Ledger*> FindLedger();
  // Returns a ledger for another thread. It may outlive this object.
  absl::StatusOr<std::unique_ptr<Ledger>> OpenAnotherLedger() {
    return OpenOrCopy(/*create=*/true);
  }
  // Returns the newest lease that the run used; nothing when it used none.
  absl::StatusOr<std::optional<Lease>> LeaseOf(absl::string_view run_id);

  // Tells the ledger the run's name, which has its number only once it is in the list of runs. That
  // list counts more, so an error is no reason to fail.
  void NoteName(const RunRow& row);

  // Opens markets as OpenMarkets does. The caller keeps them.
  absl::StatusOr<std::vector<Market>> Open(const std::vector<std::string>& names) const {
    return open_markets_(names);
  }

  // Opens every market that has a key or an open lease. Does nothing after a call that succeeded.
  // UNAUTHENTICATED when there is no such market.
  absl::Status OpenAllMarkets();
  // The next three functions require OpenAllMarkets.
  Ledger& ledger() { return *ledger_; }
  const std::vector<ReconcileMarket>& markets() const { return reconcile_; }
  // Returns the market's provider, or an error that says why there is none.
  absl::StatusOr<Provider*> Find(absl::string_view name) const;

 private:
  absl::StatusOr<std::unique_ptr<Ledger>> OpenOrCopy(bool create);
  // Tells the ledger which runs have ended that used a machine, at most once in a few seconds.
  void NoteEnds();

  CommandContext* context_;
  bool only_ends_ = false;
  MarketOpener open_markets_;
  std::unique_ptr<Ledger> ledger_;
  std::optional<absl::Duration> noted_;  // when NoteEnds last worked, since the boot
  std::vector<Market> markets_;
  std::vector<ReconcileMarket> reconcile_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_MARKET_HOLDINGS_H_
