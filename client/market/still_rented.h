// Asks the market whether a run's machine still exists, when its node does not answer.
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

// The check of one run's machine. For one thread.
class MarketCheck {
 public:
  // `row.heard_ms` is the time of the node's last sign of life. `brings_home`: this process brings
  // new checkpoints home, so a stopped machine's disk has nothing that is not here. `context` and
  // `store` outlive this.
  MarketCheck(CommandContext& context, RunStore& store, const RunRow& row, bool brings_home)
      : context_(context),
        store_(store),
        holdings_(context),
        run_id_(row.run_id),
        target_(row.target),
        brings_home_(brings_home),
        heard_ms_(row.heard_ms) {}

  // Asks about the machine. NOT_FOUND: the machine is gone or useless for ever. The message says
  // how it was lost; LinkFault::kPreempted means that the market took it. Its bill is ended, unless
  // its disk is kept and may have what is not at home: that ends with the salvage time. A machine
  // that the market has lost sight of may come back until then: OK, and the user is told. OK: the
  // market has it, cannot tell, or was asked a moment ago; or the machine is not rented. `heard_ms`
  // is the time of the node's last sign of life. `tell` gets remarks for the user. May take as long
  // as the market's answer.
  absl::Status Ask(int64_t heard_ms, const std::function<void(absl::string_view)>& tell);

 private:
  // Tells each rise that waits for an answer once.
  void TellPriceRise(Ledger& ledger, Provider& provider, const Lease& lease,
                     const std::function<void(absl::string_view)>& tell);
  absl::Status AskNow(const std::function<void(absl::string_view)>& tell);
  absl::Status WhyClosed(const Lease& lease, const std::string& name) const;

  CommandContext& context_;
  RunStore& store_;
  Holdings holdings_;
  const std::string run_id_;
  const NodeTarget target_;
  const bool brings_home_;
  bool told_trouble_ = false;
  int64_t heard_ms_;
  std::set<std::string> told_rises_;
  absl::Duration next_ = -absl::InfiniteDuration();
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_MARKET_STILL_RENTED_H_
