#include "client/market/still_rented.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/quantity.h"
#include "client/keys/market_access.h"
#include "client/market/price_rises.h"
#include "client/runs/run_end.h"
#include "client/runs/run_status.h"
#include "client/spec/launch_record.h"
#include "client/spec/run_spec.h"
#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/rental/account.h"
#include "provisioning/rental/reconcile.h"
#include "provisioning/rental/rental.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kReleaseWithin = absl::Minutes(1);
// Allowed difference between the clocks of node and laptop.
constexpr absl::Duration kClockSlack = absl::Minutes(2);
// A charge may name a time before its lease began.
constexpr absl::Duration kChargesFrom = absl::Hours(24);

// Returns the grace of the run, which its cost limit reserves beside salvage; the default's when it
// is not known.
absl::Duration GraceOf(RunStore& store, const std::string& run_id) {
  const absl::StatusOr<RunRow> row = store.Get(run_id);
  if (!row.ok()) return RunSpec().grace;
  const absl::StatusOr<LaunchRecord> record = ParseLaunchRecord(row->launch_json);
  return record.ok() ? record->spec.grace : RunSpec().grace;
}

// True when the machine has cost what a node lets it cost before it ends itself, counting
// `unreported_usd` of traffic that the ledger does not know yet.
bool IsAtItsCost(const Lease& lease, int64_t now_ms, absl::Duration grace, double unreported_usd) {
  if (lease.limits.cost_usd <= 0) return false;
  const absl::Duration reserved = absl::Seconds(lease.limits.salvage_s) + grace;
  const double reserved_usd = lease.usd_per_hour() * absl::ToDoubleHours(reserved);
  return SpentOn(lease, now_ms).high_usd + unreported_usd + reserved_usd >= lease.limits.cost_usd;
}

// True when traffic may have ended the machine: its market charges that much, or does not tell.
bool TrafficMayHaveEnded(Provider& provider, const Lease& lease, int64_t now_ms,
                         absl::Duration grace) {
  if (!lease.pays_for_traffic() || lease.limits.cost_usd <= 0) return false;
  auto charges = provider.ListTrafficCharges(
      lease.intended_ms - absl::ToInt64Milliseconds(kChargesFrom), now_ms);
  if (!charges.ok()) return true;
  const double charged_usd = (*charges)[lease.instance_id];
  return IsAtItsCost(lease, now_ms, grace, std::max(0.0, charged_usd - KnownTraffic(lease).usd));
}

// True when its market was to end the machine by now.
bool IsAtItsEnd(const Lease& lease, int64_t now_ms) {
  return lease.ends_ms > 0 && absl::Milliseconds(lease.ends_ms - now_ms) <= kClockSlack;
}

// True when the machine may have ended itself, which is no preemption: its idle limit may have
// passed during the silence, or it has cost what it may cost.
bool MayHaveEndedItself(const Lease& lease, int64_t heard_ms, int64_t now_ms,
                        absl::Duration grace) {
  if (IsAtItsCost(lease, now_ms, grace, 0)) return true;
  if (IsAtItsEnd(lease, now_ms)) return true;
  const int64_t silence_ms = now_ms - std::max(heard_ms, lease.claimed_ms);
  return absl::Milliseconds(silence_ms) >= absl::Seconds(lease.limits.idle_s) + kClockSlack;
}

// Returns what to add when the market was to end the machine before `now_ms`; "" when not.
std::string EndedAsSet(const Lease& lease, int64_t now_ms) {
  if (lease.ends_ms <= 0 || lease.ends_ms > now_ms) return "";
  return absl::StrCat(", whose end there was set to ", FormatRfc3339(lease.ends_ms));
}

// True when the market has called the machine out of order for as long as its results are kept. A
// laptop that was away proves nothing about that.
bool IsSalvageOver(const Lease& lease, int64_t now_ms) {
  return lease.trouble_ms != 0 && now_ms - lease.trouble_ms >= lease.limits.salvage_s * 1000;
}

// Notes since when the market calls the machine out of order, in `lease` too.
void NoteTrouble(Ledger& ledger, Lease& lease, bool troubled, int64_t now_ms) {
  if (troubled == (lease.trouble_ms != 0)) return;
  (void)ledger.SetTrouble(lease.lease_id, troubled, now_ms);
  lease.trouble_ms = troubled ? now_ms : 0;
}

absl::Status IsGone(const std::string& why, bool itself) {
  if (itself) {
    return absl::NotFoundError(
        absl::StrCat("its machine is gone: ", why, "; a limit may have ended it"));
  }
  return WithFault(absl::NotFoundError(absl::StrCat(kPreemptedReason, why)), LinkFault::kPreempted);
}

}  // namespace

// A listing of another verb may have found the machine gone first.
absl::Status MarketCheck::WhyClosed(const Lease& lease, const std::string& name) const {
  if (lease.ending != LeaseEnding::kOutside) {
    return absl::NotFoundError(absl::StrCat("its machine ", name, " was released"));
  }
  return IsGone(absl::StrCat(lease.provider, " has ", lease.instance_id, " no more",
                             EndedAsSet(lease, lease.ended_ms)),
                MayHaveEndedItself(lease, heard_ms_, lease.ended_ms, GraceOf(store_, run_id_)));
}

absl::Status MarketCheck::Ask(int64_t heard_ms,
                              const std::function<void(absl::string_view)>& tell) {
  heard_ms_ = std::max(heard_ms_, heard_ms);
  if (!CheckMarketName(target_.provider).ok()) return absl::OkStatus();
  const absl::Duration now = context_.clock.SinceBoot();
  if (now < next_) return absl::OkStatus();
  const absl::Status asked = AskNow(tell);
  next_ = context_.clock.SinceBoot() + kAskMarketEvery;
  // An unclear answer does not end the run.
  return absl::IsNotFound(asked) ? asked : absl::OkStatus();
}

void MarketCheck::TellPriceRise(Ledger& ledger, Provider& provider, const Lease& lease,
                                const std::function<void(absl::string_view)>& tell) {
  const absl::StatusOr<std::vector<PriceRise>> rises = provider.ListPriceRises();
  if (!rises.ok()) return;
  // A failure to store costs other commands a remark; this one tells it anyway.
  (void)ledger.StorePriceRises(lease.provider, *rises);
  for (const PriceRise& rise : *rises) {
    if (rise.instance_id != lease.instance_id || !told_rises_.insert(rise.id).second) continue;
    tell(DescribePriceRise(lease, rise, MaxPriceOf(&store_, lease), context_.NowMs()));
  }
}

absl::Status MarketCheck::AskNow(const std::function<void(absl::string_view)>& tell) {
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings_.FindLedger());
  if (ledger == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::optional<Lease> lease, ledger->OfRun(run_id_));
  if (!lease.has_value() || lease->instance_id.empty()) return absl::OkStatus();
  const std::string name = absl::StrCat(lease->provider, "/", lease->instance_id);
  if (!lease->open()) return WhyClosed(*lease, name);
  // Another gpuctl is ending it.
  if (lease->state != LeaseState::kRented) return absl::OkStatus();
  absl::StatusOr<std::vector<Market>> markets = holdings_.Open({lease->provider});
  if (!markets.ok()) return absl::OkStatus();
  Provider& provider = *markets->front().provider;
  // With a key of another account the machine looks gone.
  if (!CheckAccount(*ledger, provider, *lease).ok()) return absl::OkStatus();
  const absl::StatusOr<Instance> instance = provider.Describe(lease->instance_id);
  if (instance.ok()) NoteTrouble(*ledger, *lease, IsTroubled(*instance), context_.NowMs());
  std::string why;
  bool gone = false;
  if (absl::IsNotFound(instance.status())) {
    if (!IsUnlisted(provider, lease->instance_id)) return absl::OkStatus();
    const std::string words = WordsOfGone(instance.status());
    why = absl::StrCat(lease->provider, " has ", lease->instance_id, " no more",
                       words.empty() ? "" : ": ", words, EndedAsSet(*lease, context_.NowMs()));
    gone = true;
  } else if (!instance.ok()) {
    return absl::OkStatus();
  } else if (IsTroubled(*instance)) {
    // Its price is another one now. What cannot be written down is found out again.
    (void)ledger->Look(lease->lease_id, context_.NowMs(), *instance);
    why = absl::StrCat(name, " is ", instance->status);
    const bool silent = instance->state == Instance::State::kSilent;
    const bool kept = silent || (provider.traits().keeps_stopped_disk && !brings_home_);
    if (kept && !IsSalvageOver(*lease, context_.NowMs())) {
      const std::string bills = absl::StrCat(why, ": what is not at home is kept for ",
                                             HumanDuration(absl::Seconds(lease->limits.salvage_s)),
                                             ", and bills; gpuctl down ", name, " ends it now");
      if (!told_trouble_) tell(bills);
      told_trouble_ = true;
      if (silent) return absl::OkStatus();
      return WithFault(absl::NotFoundError(absl::StrCat(kPreemptedReason, why)),
                       LinkFault::kPreempted);
    }
  } else {
    TellPriceRise(*ledger, provider, *lease, tell);
    return absl::OkStatus();
  }
  const int64_t now_ms = context_.NowMs();
  const absl::Duration grace = GraceOf(store_, run_id_);
  const bool itself = gone && (IsOwnEnd(instance.status()) ||
                               MayHaveEndedItself(*lease, heard_ms_, now_ms, grace) ||
                               TrafficMayHaveEnded(provider, *lease, now_ms, grace));
  const LeaseEnding ending = itself ? LeaseEnding::kGone : LeaseEnding::kPreempted;
  absl::Status ended;
  if (gone) {
    ended = NoteGone(*ledger, lease->lease_id, context_.clock, heard_ms_, ending);
  } else {
    // A stopped machine still bills its disk, so release it.
    RentalHooks hooks;
    hooks.progress = tell;
    ReleaseOptions release;
    release.patience = kReleaseWithin;
    release.how = std::string(HowEnded(ending));
    ended = Release(*ledger, provider, lease->lease_id, context_.clock, hooks, release).status();
  }
  if (!ended.ok()) {
    tell(absl::StrCat(name, " may still bill: ", ended.message(), "; gpuctl reap ends it"));
  }
  return IsGone(why, itself);
}

}  // namespace gpuctl
