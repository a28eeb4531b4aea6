// The ledger and the rental markets together: all that we rent, and who can end it.
#ifndef GPUCTL_CLIENT_RENT_HOLDINGS_H_
#define GPUCTL_CLIENT_RENT_HOLDINGS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/market/market_access.h"
#include "client/runs/context.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/market/provider.h"
#include "provisioning/rental/reconcile.h"

namespace gpuctl {

// What is written down of our machines, beside the markets that can be asked about them.
class Holdings {
 public:
  // Opens every market with a key, and those where a lease is open. UNAUTHENTICATED when there
  // is neither.
  static absl::StatusOr<Holdings> Open(CommandContext& context);
  // For tests: takes what they have at hand.
  Holdings(std::unique_ptr<Ledger> ledger, std::vector<Market> markets);

  Ledger& ledger() { return *ledger_; }
  const std::vector<ReconcileMarket>& markets() const { return reconcile_; }
  // Returns the market's provider, or why there is none.
  absl::StatusOr<Provider*> Find(absl::string_view name) const;

 private:
  std::unique_ptr<Ledger> ledger_;
  std::vector<Market> markets_;
  std::vector<ReconcileMarket> reconcile_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RENT_HOLDINGS_H_
