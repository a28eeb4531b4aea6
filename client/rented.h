// The ledger and the rental markets together, as the verbs that deal with money use them.
#ifndef GPUCTL_CLIENT_RENTED_H_
#define GPUCTL_CLIENT_RENTED_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/context.h"
#include "client/market_access.h"
#include "common/signal_pipe.h"
#include "provisioning/ledger.h"
#include "provisioning/reconcile.h"
#include "provisioning/rental.h"

namespace gpuctl {

class RentedWorld {
 public:
  // Every market with a key, and those where a lease is open. UNAUTHENTICATED when there is
  // neither.
  static absl::StatusOr<RentedWorld> Open(CommandContext& context);
  // What a test has at hand.
  RentedWorld(std::unique_ptr<Ledger> ledger, std::vector<Market> markets);

  Ledger& ledger() { return *ledger_; }
  const std::vector<ReconcileMarket>& markets() const { return reconcile_; }
  // The market's provider, or why there is none.
  absl::StatusOr<Provider*> Find(absl::string_view name) const;

 private:
  std::unique_ptr<Ledger> ledger_;
  std::vector<Market> markets_;
  std::vector<ReconcileMarket> reconcile_;
};

// Progress to stderr; Ctrl-C, kill and a closed terminal, while this lives, cancel instead of
// ending the process.
class InterruptibleHooks {
 public:
  explicit InterruptibleHooks(CommandContext& context);
  InterruptibleHooks(const InterruptibleHooks&) = delete;
  InterruptibleHooks& operator=(const InterruptibleHooks&) = delete;
  const RentalHooks& hooks() const { return hooks_; }

 private:
  std::optional<SignalPipe> signals_;
  bool cancelled_ = false;
  RentalHooks hooks_;
};

// Remarks of a reconciliation to stderr: markets that are unknown, prices that changed, what ended.
void TellFindings(CommandContext& context, const Reconciliation& found);
// What a verb exits with for it: 117 with `leaks`, else the worst of the unknown markets, else 0.
int ExitCodeOfFindings(const Reconciliation& found, bool leaks);

// "unknown" of the verbs' JSON: [{provider, cause, leases}].
std::string UnknownToJson(const std::vector<UnknownMarket>& unknown);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RENTED_H_
