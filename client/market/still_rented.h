// Whether the market still has the rented machine that a run is on: asked when its node does not
// answer.
#ifndef GPUCTL_CLIENT_MARKET_STILL_RENTED_H_
#define GPUCTL_CLIENT_MARKET_STILL_RENTED_H_

#include <functional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/market/provider.h"

namespace gpuctl {

constexpr absl::Duration kAskMarketEvery = absl::Seconds(15);

// Used by one thread.
class MarketCheck {
 public:
  // `context` and `store` outlive it.
  MarketCheck(CommandContext& context, RunStore& store, const RunRow& row)
      : context_(context),
        store_(store),
        holdings_(context),
        run_id_(row.run_id),
        target_(row.target),
        heard_ms_(row.heard_ms) {}

  // NOT_FOUND: the machine is gone or will never be of use again, and its bill is ended; the
  // message says how it was lost, and LinkFault::kPreempted that the market took it. OK: the market
  // has it, cannot tell, or was asked a moment ago; and for machines that are not rented. `tell`
  // gets remarks for the user. May take as long as the market does.
  absl::Status Ask(int64_t heard_ms, const std::function<void(absl::string_view)>& tell);

 private:
  // Once for each that waits for an answer.
  void TellPriceRise(Ledger& ledger, Provider& provider, const Lease& lease,
                     const std::function<void(absl::string_view)>& tell);
  absl::Status AskNow(const std::function<void(absl::string_view)>& tell);

  CommandContext& context_;
  RunStore& store_;
  Holdings holdings_;
  const std::string run_id_;
  const NodeTarget target_;
  int64_t heard_ms_;
  std::set<std::string> told_rises_;
  absl::Duration next_ = -absl::InfiniteDuration();
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_MARKET_STILL_RENTED_H_
