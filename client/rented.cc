#include "client/rented.h"

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/lease_view.h"
#include "client/price_rises.h"
#include "common/status_macros.h"
#include "provisioning/markets.h"

namespace gpuctl {

RentedWorld::RentedWorld(std::unique_ptr<Ledger> ledger, std::vector<Market> markets)
    : ledger_(std::move(ledger)), markets_(std::move(markets)) {
  for (const Market& market : markets_) {
    reconcile_.push_back({market.name, market.provider.get(), absl::OkStatus()});
  }
}

absl::StatusOr<RentedWorld> RentedWorld::Open(CommandContext& context) {
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
  RentedWorld world(std::move(ledger), std::move(usable));
  world.reconcile_.insert(world.reconcile_.end(), unusable.begin(), unusable.end());
  return world;
}

absl::StatusOr<Provider*> RentedWorld::Find(absl::string_view name) const {
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

InterruptibleHooks::InterruptibleHooks(CommandContext& context) {
  absl::StatusOr<SignalPipe> signals = SignalPipe::Install({SIGINT, SIGTERM, SIGHUP});
  if (signals.ok()) signals_.emplace(*std::move(signals));
  hooks_.progress = [&context](absl::string_view line) { context.Say(line); };
  hooks_.cancelled = [this] {
    cancelled_ = cancelled_ || (signals_.has_value() && !signals_->Take().empty());
    return cancelled_;
  };
}

void TellFindings(CommandContext& context, const Reconciliation& found) {
  for (const UnknownMarket& market : found.unknown) {
    context.Say(absl::StrCat(market.name, ": UNKNOWN: ", market.cause.message()));
    for (const Lease& lease : market.leases) {
      context.Say(absl::StrCat(lease.instance_id.empty() ? lease.label : lease.instance_id,
                               " may bill there, ", FormatUsdPerHour(lease.usd_per_hour()), "/h"));
    }
  }
  for (const PriceNote& note : found.price_changes) {
    context.Say(absl::StrCat("the price of ", note.lease.instance_id, " at ", note.lease.provider,
                             " went from ", FormatUsdPerHour(note.before_usd_per_hour), " to ",
                             FormatUsdPerHour(note.lease.usd_per_hour()), "/h"));
  }
  for (const SeenInstance& seen : found.instances) {
    if (!seen.rise.has_value()) continue;
    context.Say(DescribePriceRise(*seen.lease, *seen.rise, MaxPriceOf(context, *seen.lease),
                                  context.NowMs()));
  }
  for (const UnknownMarket& market : found.rises_unknown) {
    context.Say(absl::StrCat("whether prices rise at ", market.name,
                             " is not known: ", market.cause.message()));
  }
  for (const Lease& lease : found.ended_outside) {
    context.Say(absl::StrCat(lease.instance_id, " at ", lease.provider,
                             " ended by itself or by somebody else's hand"));
  }
  for (const Lease& lease : found.not_created) {
    context.Say(absl::StrCat("what was asked for as ", lease.label, " at ", lease.provider,
                             " was never created"));
  }
}

int ExitCodeOfFindings(const Reconciliation& found, bool leaks) {
  if (leaks) return kExitLeak;
  int code = kExitOk;
  for (const UnknownMarket& market : found.unknown) {
    const int one = ExitCodeOf(ExplainMarketError(market.cause, market.name));
    if (code == kExitOk || one == kExitCredentials) code = one;
  }
  return code;
}

std::string UnknownToJson(const std::vector<UnknownMarket>& unknown) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const UnknownMarket& market : unknown) {
    nlohmann::ordered_json leases = nlohmann::ordered_json::array();
    for (const Lease& lease : market.leases) leases.push_back(lease.lease_id);
    list.push_back({{"provider", market.name},
                    {"cause", std::string(market.cause.message())},
                    {"leases", leases}});
  }
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace gpuctl
