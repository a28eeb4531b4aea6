#include "client/launch/rent_together.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <semaphore>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/base/paths.h"
#include "client/base/quantity.h"
#include "client/keys/market_access.h"
#include "client/keys/unused_logins.h"
#include "client/link/ssh_session.h"
#include "client/rent/lease_limits.h"
#include "client/rent/rent_node.h"
#include "client/rent/reuse_node.h"
#include "common/base/at_once.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/process/signal_pipe.h"
#include "provisioning/ledger/lease.h"
#include "provisioning/rental/rental.h"

namespace gpuctl {
namespace {

constexpr std::chrono::milliseconds kLookForTurn(100);

std::string NodeName(size_t rank) { return absl::StrCat("node ", rank); }

class TogetherRenter {
 public:
  TogetherRenter(CommandContext& context, Holdings& holdings, const RentedNodeRequest& request,
                 const std::vector<RentedPart>& parts, SignalPipe& signals)
      : context_(context),
        holdings_(holdings),
        request_(request),
        parts_(parts),
        signals_(signals) {}

  absl::StatusOr<std::vector<RentedNode>> Run() {
    ASSIGN_OR_RETURN(const ClientPaths paths, context_.Paths());
    // What all threads need is made once.
    RETURN_IF_ERROR(EnsureKeyPair(paths.own_key(), "gpuctl").status());
    ASSIGN_OR_RETURN(Ledger* const ledger, holdings_.OpenLedger());
    RETURN_IF_ERROR(ledger->OwnerId().status());
    std::set<std::string> refusing;
    absl::Status last = absl::NotFoundError("there was none");
    int tried = 0, paid_failures = 0;
    for (const Offer& offer : request_.offers) {
      if (refusing.count(offer.provider) > 0) continue;
      ++tried;
      absl::StatusOr<std::vector<RentedNode>> nodes = TryOffer(offer);
      if (nodes.ok()) return nodes;
      last = nodes.status();
      // The work was interrupted, or it is not known what bills.
      if (Interrupted() || absl::IsCancelled(last) || fatal_) return last;
      const std::string cause = CauseOf(last);
      if (cause == kMarketRefuses) {
        refusing.insert(offer.provider);
      } else if (!absl::IsNotFound(last)) {
        return last;
      }
      paid_failures += cause == kBadMachine ? 1 : 0;
      if (paid_failures >= kPaidFailures) break;
    }
    if (CauseOf(last) == kMarketRefuses) return last;
    return WithExitCode(
        WithHint(WithCause(absl::NotFoundError(absl::StrCat(
                               "rent ", parts_.size(), " machines together: none of ", tried,
                               " offers could be had for all; the last: ", last.message())),
                           CauseOf(last)),
                 "gpuctl offers lists others; fewer nodes: or another --gpu or --region may do"),
        kExitCapacity);
  }

 private:
  // What one thread rents with.
  struct Desk {
    std::unique_ptr<Ledger> ledger;
    std::vector<Market> markets;
    absl::StatusOr<RentedNode> node = absl::CancelledError("another machine could not be had");
  };

  bool Interrupted() {
    const MutexLock lock(mutex_);
    interrupted_ = interrupted_ || !signals_.Take().empty();
    return interrupted_;
  }

  absl::StatusOr<std::vector<RentedNode>> TryOffer(const Offer& offer) {
    std::vector<Desk> desks(parts_.size());
    for (Desk& desk : desks) {
      ASSIGN_OR_RETURN(desk.ledger, holdings_.OpenAnotherLedger());
      ASSIGN_OR_RETURN(desk.markets, holdings_.Open({offer.provider}));
    }
    std::atomic<bool> failed{false};
    ForEachAtOnce(desks.size(), desks.size(), [&](size_t rank) {
      if (failed) return;
      desks[rank].node = RentPart(rank, offer, desks[rank], failed);
      if (!desks[rank].node.ok()) failed = true;
    });
    std::vector<RentedNode> nodes;
    if (!failed && !Interrupted()) {
      for (Desk& desk : desks) nodes.push_back(*std::move(desk.node));
      return nodes;
    }
    const absl::Status why = WhyNot(desks);
    GiveBack(why, desks);
    ASSIGN_OR_RETURN(const std::vector<std::string> may_bill, SettleCosts(desks));
    if (request_.login.has_value() && may_bill.empty()) {
      Provider& provider = *desks.front().markets.front().provider;
      RemoveUnusedLogins(context_, *desks.front().ledger, provider);
    }
    fatal_ = !may_bill.empty();
    if (Interrupted()) {
      return WithExitCode(
          absl::CancelledError(absl::StrCat(
              "launch: interrupted; ",
              fatal_ ? absl::StrJoin(may_bill, "; ")
                     : "the machines that were rented for it were ended, nothing bills")),
          kExitInterrupted);
    }
    for (const std::string& text : may_bill) context_.Warn(text);
    return why;
  }

  absl::StatusOr<RentedNode> RentPart(size_t rank, const Offer& offer, Desk& desk,
                                      const std::atomic<bool>& failed) {
    RunSpec left = *request_.spec;
    if (left.cost_limit_usd.has_value()) *left.cost_limit_usd -= paid_usd_;
    const RunSpec spec = SpecOfOne(left, static_cast<int>(parts_.size()));
    RentedNodeRequest whole = request_;
    if (whole.agreed_usd.has_value()) *whole.agreed_usd -= paid_usd_;
    RentedNodeRequest part = RequestOfPart(whole, spec, parts_, rank);
    part.offers = {offer};
    part.cancelled = [this, &failed] { return failed || Interrupted(); };
    part.interrupted = [this] { return Interrupted(); };
    part.take_turn = [this, &failed] { return TakeTurn(failed); };
    return RentNode(context_, *desk.ledger, desk.markets, part);
  }

  // One machine is asked for after the other: a market may take a request in twelve seconds only,
  // so that some would wait too long, and would still be asked for after Ctrl-C.
  std::shared_ptr<void> TakeTurn(const std::atomic<bool>& failed) {
    while (!failed && !Interrupted()) {
      if (!turn_.try_acquire_for(kLookForTurn)) continue;
      return {this, [this](void*) { turn_.release(); }};
    }
    return nullptr;
  }

  // Returns the error that came first: those that it interrupted only say so.
  absl::Status WhyNot(const std::vector<Desk>& desks) {
    absl::Status why;
    for (size_t rank = 0; rank < desks.size(); ++rank) {
      const absl::Status& status = desks[rank].node.status();
      if (status.ok() || (absl::IsCancelled(status) && !why.ok())) continue;
      if (why.ok() || absl::IsCancelled(why)) why = Annotate(status, NodeName(rank));
    }
    return why.ok() ? absl::CancelledError("launch: interrupted") : why;
  }

  // Ends the machines that came up beside one that did not, all at the same time.
  void GiveBack(const absl::Status& why, std::vector<Desk>& desks) {
    ForEachAtOnce(desks.size(), desks.size(), [&](size_t rank) {
      Desk& desk = desks[rank];
      if (!desk.node.ok()) return;
      const Lease lease = desk.node->lease;
      context_.Say(absl::StrCat(NodeName(rank), ": giving ", lease.instance_id,
                                " back: ", Interrupted() ? "interrupted" : why.message()));
      RentalHooks hooks;
      hooks.progress = [this](absl::string_view line) { context_.Say(line); };
      ReleaseOptions release;
      release.how = Interrupted() ? kHowInterrupted : "of no use";
      const absl::StatusOr<Lease> released =
          Release(*desk.ledger, *desk.markets.front().provider, lease.lease_id, context_.clock,
                  hooks, release);
      // What may bill after that is told with the error.
      if (!released.ok()) desk.node = released.status();
    });
  }

  // Adds up what the machines have cost that were given back. Returns a text for each that may
  // still bill: then no other is rented.
  absl::StatusOr<std::vector<std::string>> SettleCosts(const std::vector<Desk>& desks) {
    ASSIGN_OR_RETURN(Ledger* const ledger, holdings_.OpenLedger());
    std::vector<std::string> may_bill;
    for (size_t rank = 0; rank < parts_.size(); ++rank) {
      ASSIGN_OR_RETURN(const std::optional<Lease> lease, ledger->OfRun(parts_[rank].run_id));
      if (!lease.has_value()) continue;
      costs_[lease->lease_id] = SpentOn(*lease, context_.NowMs()).high_usd;
      if (!lease->open()) continue;
      const absl::Status& status = desks[rank].node.status();
      const std::string what = lease->instance_id.empty() ? lease->label : lease->instance_id;
      may_bill.push_back(
          absl::StrCat(NodeName(rank), ": ", what, " at ", lease->provider, " may bill, ",
                       FormatUsd(lease->usd_per_hour()), "/h; gpuctl reap finds out and ends it",
                       status.ok() ? "" : ": ", status.ok() ? "" : status.message()));
    }
    paid_usd_ = 0;
    for (const auto& [lease_id, usd] : costs_) paid_usd_ += usd;
    return may_bill;
  }

  CommandContext& context_;
  Holdings& holdings_;
  const RentedNodeRequest& request_;
  const std::vector<RentedPart>& parts_;
  SignalPipe& signals_;
  bool fatal_ = false;                   // a machine may still bill
  std::map<std::string, double> costs_;  // of the machines that were of no use, by lease id
  double paid_usd_ = 0;                  // what these cost, at most
  std::binary_semaphore turn_{1};
  Mutex mutex_;
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

RentedNodeRequest RequestOfPart(const RentedNodeRequest& whole, const RunSpec& spec,
                                const std::vector<RentedPart>& parts, size_t rank) {
  RentedNodeRequest part = whole;
  part.spec = &spec;
  part.run_id = parts[rank].run_id;
  part.run_name = parts[rank].run_name;
  if (part.agreed_usd.has_value()) *part.agreed_usd /= static_cast<double>(parts.size());
  part.prefix = absl::StrCat(NodeName(rank), ": ");
  return part;
}

absl::StatusOr<std::vector<RentedNode>> ReuseTogether(CommandContext& context, Ledger& ledger,
                                                      const std::vector<Market>& markets,
                                                      const RentedNodeRequest& request,
                                                      const std::vector<RentedPart>& parts,
                                                      const std::vector<Lease>& idle) {
  const RunSpec spec = SpecOfOne(*request.spec, static_cast<int>(parts.size()));
  std::vector<RentedNode> nodes;
  if (idle.size() != parts.size()) return nodes;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    ASSIGN_OR_RETURN(
        std::optional<RentedNode> node,
        ReuseThis(context, ledger, markets, RequestOfPart(request, spec, parts, rank), idle[rank]));
    if (!node.has_value()) break;
    nodes.push_back(*std::move(node));
  }
  if (nodes.size() == parts.size()) return nodes;
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    RETURN_IF_ERROR(ledger.NotUsedBy(idle[rank].lease_id, parts[rank].run_id, idle[rank].limits));
  }
  context.Say(absl::StrCat(idle[nodes.size()].instance_id, " at ", idle[nodes.size()].provider,
                           " is not idle any more, so none of the idle machines is used"));
  return std::vector<RentedNode>();
}

absl::StatusOr<std::vector<RentedNode>> RentTogether(CommandContext& context, Holdings& holdings,
                                                     const RentedNodeRequest& request,
                                                     const std::vector<RentedPart>& parts) {
  ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGINT, SIGTERM, SIGHUP}));
  absl::StatusOr<std::vector<RentedNode>> nodes =
      TogetherRenter(context, holdings, request, parts, signals).Run();
  if (absl::IsCancelled(nodes.status())) signals.CatchUntilExit();
  return nodes;
}

}  // namespace gpuctl
