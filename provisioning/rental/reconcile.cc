#include "provisioning/rental/reconcile.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "provisioning/ledger/lease_lock.h"
#include "provisioning/market/label.h"
#include "provisioning/rental/account.h"

namespace gpuctl {
namespace {

bool HasCostItsLimit(const Lease& lease, int64_t now_ms) {
  return lease.limits.cost_usd > 0 && SpentOn(lease, now_ms).low_usd >= lease.limits.cost_usd;
}

constexpr int kAbsentListings = 2;
constexpr int64_t kDayMs = 86'400'000;
// The time for which a market may charge a machine that has ended for its traffic.
constexpr int64_t kChargesLagMs = 2 * kDayMs;
// The salvage of a lease that names none: one that came back into a ledger that was lost.
constexpr int64_t kSalvageS = 86'400;

// Returns OK for a failure to write, which goes into `result`, else `written`.
absl::Status NoteFault(const absl::Status& written, Reconciliation& result) {
  if (!IsLedgerFault(written)) return written;
  if (result.unwritten.ok()) result.unwritten = written;
  return absl::OkStatus();
}

// Judges one market that could be listed.
class MarketJudge {
 public:
  MarketJudge(Ledger& ledger, Provider& provider, const std::set<std::string>& owners,
              const ReconcileOptions& options, int64_t listed_ms, Clock& clock,
              Reconciliation& result)
      : ledger_(ledger),
        provider_(provider),
        owners_(owners),
        options_(options),
        listed_ms_(listed_ms),
        clock_(clock),
        result_(result) {}

  // The laptop's clock is wrong, so no time is judged and none is written down.
  void DistrustTheClock() { clock_is_wrong_ = true; }

  absl::Status Run(const std::vector<Instance>& listed) {
    ASSIGN_OR_RETURN(const std::vector<Lease> known, ledger_.List(/*open_only=*/true));
    for (const Lease& lease : known) {
      if (lease.provider == provider_.name() && !lease.instance_id.empty()) {
        open_[lease.instance_id] = lease.lease_id;
      }
    }
    for (const Instance& instance : listed) {
      ids_.insert(instance.id);
      RETURN_IF_ERROR(TakeInstance(instance));
    }
    ASSIGN_OR_RETURN(const std::vector<Lease> open, ledger_.List(/*open_only=*/true));
    for (const Lease& lease : open) {
      const bool missing = lease.instance_id.empty() ? settled_.count(lease.lease_id) == 0
                                                     : ids_.count(lease.instance_id) == 0;
      if (lease.provider == provider_.name() && missing) {
        RETURN_IF_ERROR(TakeMissing(lease.lease_id));
      }
    }
    RETURN_IF_ERROR(TakePriceRises());
    RETURN_IF_ERROR(TakeTrafficCharges());
    if (!elsewhere_.empty()) {
      result_.unknown.push_back({std::string(provider_.name()), elsewhere_cause_, elsewhere_});
    }
    if (!unreadable_.empty()) {
      result_.unknown.push_back({std::string(provider_.name()), unreadable_cause_, unreadable_});
    }
    return absl::OkStatus();
  }

 private:
  // A ledger that cannot be written, on a full disk, keeps nobody from knowing what bills.
  absl::Status Noted(const absl::Status& written) { return NoteFault(written, result_); }

  void Add(const Instance& instance, Holder holder, std::string lease_id, std::string why,
           std::optional<Lease> lease) {
    ListedInstance listed;
    listed.instance = instance;
    listed.holder = holder;
    listed.lease_id = std::move(lease_id);
    listed.why = std::move(why);
    result_.instances.push_back(
        {std::string(provider_.name()), std::move(listed), std::move(lease), {}, false});
  }

  absl::Status TakeInstance(const Instance& instance) {
    std::optional<LeaseLabel> label = ParseLabel(instance.label);
    if (const auto open = open_.find(instance.id); !label.has_value() && open != open_.end()) {
      // Somebody renamed it at the market. Its id is that of our lease all the same.
      ASSIGN_OR_RETURN(const Lease lease, ledger_.Get(open->second));
      label = ParseLabel(lease.label);
    }
    if (!label.has_value()) {
      Add(instance, Holder::kForeign, "", "", {});
      return absl::OkStatus();
    }
    settled_.insert(label->lease);
    if (owners_.count(label->owner) == 0) return TakeOthers(instance, label->lease);
    // The lock comes first: when it is free, the ledger's state is final.
    ASSIGN_OR_RETURN(const bool held, LeaseLock::IsHeld(ledger_.state_dir(), label->lease));
    absl::StatusOr<Lease> lease = ledger_.Get(label->lease);
    if (!lease.ok() && !absl::IsNotFound(lease.status())) return lease.status();
    if (held) {
      Add(instance, Holder::kLaunching, label->lease, "",
          lease.ok() ? std::optional<Lease>(*lease) : std::nullopt);
      return absl::OkStatus();
    }
    if (!lease.ok()) {
      Add(instance, Holder::kLost, label->lease, "this ledger does not know it", {});
      return absl::OkStatus();
    }
    return JudgeOurs(instance, *std::move(lease));
  }

  // A machine of another owner. A ledger that was copied knows its lease; the original ledger may
  // want it, so it is no leak here.
  absl::Status TakeOthers(const Instance& instance, const std::string& lease_id) {
    absl::StatusOr<Lease> lease = ledger_.Get(lease_id);
    if (!lease.ok() && !absl::IsNotFound(lease.status())) return lease.status();
    const bool known = lease.ok() && lease->instance_id == instance.id;
    Add(instance, Holder::kOtherOwner, known ? lease_id : "",
        known ? "another gpuctl's ledger has it, too" : "",
        known ? std::optional<Lease>(*std::move(lease)) : std::nullopt);
    return absl::OkStatus();
  }

  absl::Status JudgeOurs(const Instance& instance, Lease lease) {
    const std::string id = lease.lease_id;
    // It carries our label, so the key that shows it is of its account.
    ASSIGN_OR_RETURN(const bool same, ledger_.IsOfAccount(lease, provider_.key_print()));
    if (!same) {
      RETURN_IF_ERROR(
          Noted(ledger_.JoinAccounts(provider_.name(), lease.key_print, provider_.key_print())));
    } else if (lease.key_print.empty() && !provider_.key_print().empty()) {
      RETURN_IF_ERROR(Noted(ledger_.SetKey(id, provider_.key_print())));
    }
    std::string why;
    bool ask_node = false, left_behind = false;
    if (lease.instance_id.empty()) {
      ask_node = true;
      why = lease.state == LeaseState::kIntent ? "the launch that asked for it ended"
                                               : "the ledger took it for never created";
      RETURN_IF_ERROR(Noted(ledger_.Rented(id, instance)));
      ASSIGN_OR_RETURN(lease, ledger_.Get(id));
      lease.instance_id = instance.id;
    } else if (lease.instance_id != instance.id) {
      Add(instance, Holder::kLeak, id, absl::StrCat("a duplicate of ", lease.instance_id), lease);
      return absl::OkStatus();
    } else if (lease.state == LeaseState::kReleased) {
      // The list may lag behind the instance's end.
      const absl::Status there = provider_.Describe(instance.id).status();
      if (absl::IsNotFound(there)) return absl::OkStatus();
      ASSIGN_OR_RETURN(why, WhyStillReleased(lease));
    } else if (lease.state == LeaseState::kReleasing) {
      why = "its release was not finished";
    } else if (lease.claimed_ms == 0) {
      ask_node = true;
      why = "its launch ended before the node took over";
    } else if (!clock_is_wrong_ && HasCostItsLimit(lease, listed_ms_)) {
      // There was time to save and fetch results. A machine that can end itself has done so by
      // then.
      why = "it has cost what it may cost";
    }
    if (lease.state != LeaseState::kReleased && !clock_is_wrong_) {
      const double before = lease.usd_per_hour();
      const absl::StatusOr<bool> changed = ledger_.Look(id, listed_ms_, instance);
      RETURN_IF_ERROR(Noted(changed.status()));
      if (changed.ok()) {
        ASSIGN_OR_RETURN(lease, ledger_.Get(id));
      }
      RETURN_IF_ERROR(TakeTrouble(instance, lease));
      if (why.empty()) {
        why = WhyTroubleIsOver(instance, lease);
        ask_node = !why.empty();
      }
      if (why.empty()) {
        why = WhyLeftBehind(lease);
        left_behind = !why.empty();
      }
      if (changed.value_or(false)) result_.price_changes.push_back({lease, before});
    }
    const Holder holder = why.empty() ? Holder::kWanted : Holder::kLeak;
    Add(instance, holder, id, std::move(why), std::move(lease));
    result_.instances.back().ask_node = ask_node;
    result_.instances.back().left_behind = left_behind;
    return absl::OkStatus();
  }

  // Judges a machine that bills though its lease is released. One that its market had called gone,
  // and that nobody here has ended, comes back: a job may run on it. Else returns why not.
  absl::StatusOr<std::string> WhyStillReleased(Lease& lease) {
    if (lease.ending == LeaseEnding::kOther || lease.releasing_ms != 0 || lease.claimed_ms == 0) {
      return "the ledger calls it released";
    }
    if (!lease.uses.empty()) {
      ASSIGN_OR_RETURN(const std::optional<Lease> newest, ledger_.OfRun(lease.uses.back().run_id));
      if (newest.has_value() && newest->lease_id != lease.lease_id) {
        return absl::StrCat("its run went on at ", newest->provider);
      }
    }
    RETURN_IF_ERROR(Noted(ledger_.Reopen(lease.lease_id)));
    // As it is in the ledger now, unless that cannot be written.
    lease.state = LeaseState::kRented;
    lease.ended_ms = lease.ended_after_ms = 0;
    lease.how_ended.clear();
    result_.back.push_back(lease);
    return "";
  }

  // Its run goes on elsewhere: two of it would bill, and write the same things.
  std::string WhyLeftBehind(const Lease& lease) const {
    if (!options_.successor || lease.uses.empty()) return "";
    const std::string successor = options_.successor(lease.uses.back().run_id);
    return successor.empty() ? "" : absl::StrCat("its run went on as ", successor);
  }

  // Notes since when the machine of a claimed lease has been out of order.
  absl::Status TakeTrouble(const Instance& instance, Lease& lease) {
    const bool troubled = IsTroubled(instance);
    if (troubled == (lease.trouble_ms != 0)) return absl::OkStatus();
    lease.trouble_ms = troubled ? listed_ms_ : 0;
    return Noted(ledger_.SetTrouble(lease.lease_id, troubled, listed_ms_));
  }

  // There was time for the machine to come back and for its results to be fetched.
  std::string WhyTroubleIsOver(const Instance& instance, const Lease& lease) const {
    if (lease.trouble_ms == 0) return "";
    const int64_t salvage_s = lease.limits.salvage_s > 0 ? lease.limits.salvage_s : kSalvageS;
    if (listed_ms_ - lease.trouble_ms < salvage_s * 1000) return "";
    return absl::StrCat("it is ", instance.status, " for longer than its results are kept");
  }

  // Judges an open lease that the listing does not show.
  absl::Status TakeMissing(const std::string& lease_id) {
    ASSIGN_OR_RETURN(const bool held, LeaseLock::IsHeld(ledger_.state_dir(), lease_id));
    if (held) return absl::OkStatus();
    ASSIGN_OR_RETURN(Lease lease, ledger_.Get(lease_id));
    if (!lease.open()) return absl::OkStatus();
    const absl::Status account = CheckAccount(ledger_, provider_, lease);
    if (absl::IsPermissionDenied(account)) {
      elsewhere_cause_ = account;
      elsewhere_.push_back(std::move(lease));
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(account);
    if (lease.state == LeaseState::kIntent) return SettleIntent(lease);
    const absl::StatusOr<Instance> there = provider_.Describe(lease.instance_id);
    if (there.ok()) {
      const std::optional<LeaseLabel> label = ParseLabel(lease.label);
      const bool ours = !label.has_value() || owners_.count(label->owner) > 0;
      return ours ? JudgeOurs(*there, std::move(lease)) : TakeOthers(*there, lease_id);
    }
    // It was rented during the listing or shortly before, so the list and the look-up may not know
    // it yet.
    ASSIGN_OR_RETURN(const bool outlasted, HasOutlastedLag(lease));
    if (!outlasted && !(absl::IsNotFound(there.status()) && MustHaveEnded(lease))) {
      result_.unsettled.push_back(std::move(lease));
      return absl::OkStatus();
    }
    if (!absl::IsNotFound(there.status())) {
      unreadable_.push_back(std::move(lease));
      unreadable_cause_ = there.status();
      return absl::OkStatus();
    }
    const bool asked = lease.state == LeaseState::kReleasing;
    RETURN_IF_ERROR(Noted(ledger_.Released(lease_id, BilledUntil(lease, lease.seen_ms),
                                           asked ? "released" : HowEnded(LeaseEnding::kOutside))));
    if (asked) return absl::OkStatus();
    ASSIGN_OR_RETURN(result_.ended_outside.emplace_back(), ledger_.Get(lease_id));
    return absl::OkStatus();
  }

  // True for a machine that its market knew, and whose own idle limit has passed since the rent: it
  // ends itself then. Where it bills after all, a later listing brings it back.
  bool MustHaveEnded(const Lease& lease) const {
    return !clock_is_wrong_ && lease.state == LeaseState::kRented && lease.claimed_ms > 0 &&
           provider_.traits().self_release() && lease.limits.idle_s > 0 &&
           listed_ms_ - std::max(lease.rented_ms, lease.claimed_ms) > lease.limits.idle_s * 1000;
  }

  // True when the lists know everything that was rented when this lease was. Where the clock went
  // back after that, the time begins anew with the first listing that does not show it.
  absl::StatusOr<bool> HasOutlastedLag(const Lease& lease) {
    if (clock_is_wrong_) return false;
    if (lease.rented_ms <= absl::ToUnixMillis(clock_.Now())) {
      return listed_ms_ - lease.rented_ms >= kListLagMs;
    }
    RETURN_IF_ERROR(Noted(ledger_.NoteAbsent(lease.lease_id, listed_ms_)));
    ASSIGN_OR_RETURN(const Lease now, ledger_.Get(lease.lease_id));
    return IsSurelyAbsent(now);
  }

  bool IsSurelyAbsent(const Lease& lease) const {
    return lease.absent_listings >= kAbsentListings &&
           listed_ms_ - lease.absent_since_ms >= kListLagMs;
  }

  // Asks for price rises, but only where something of ours bills.
  absl::Status TakePriceRises() {
    const auto ours = [this](const SeenInstance& seen) {
      return seen.provider == provider_.name() && seen.lease.has_value();
    };
    if (std::none_of(result_.instances.begin(), result_.instances.end(), ours)) {
      return absl::OkStatus();
    }
    const absl::StatusOr<std::vector<PriceRise>> rises = provider_.ListPriceRises();
    if (!rises.ok()) {
      result_.rises_unknown.push_back({std::string(provider_.name()), rises.status(), {}});
      return absl::OkStatus();
    }
    for (SeenInstance& seen : result_.instances) {
      if (!ours(seen)) continue;
      for (const PriceRise& rise : *rises) {
        if (rise.instance_id == seen.listed.instance.id) seen.rise = rise;
      }
    }
    return Noted(ledger_.StorePriceRises(provider_.name(), *rises));
  }

  // Asks what traffic has cost, of machines that pay for it and bill, or did lately: what a market
  // charges may show later.
  absl::Status TakeTrafficCharges() {
    if (clock_is_wrong_) return absl::OkStatus();
    ASSIGN_OR_RETURN(std::vector<Lease> leases, ledger_.List(/*open_only=*/false));
    const auto no_news = [this](const Lease& lease) {
      return lease.provider != provider_.name() || !lease.pays_for_traffic() ||
             lease.instance_id.empty() ||
             (!lease.open() && lease.ended_ms < listed_ms_ - kChargesLagMs);
    };
    leases.erase(std::remove_if(leases.begin(), leases.end(), no_news), leases.end());
    if (leases.empty()) return absl::OkStatus();
    int64_t from_ms = listed_ms_;
    for (const Lease& lease : leases) from_ms = std::min(from_ms, lease.intended_ms);
    const auto charges = provider_.ListTrafficCharges(from_ms - kDayMs, listed_ms_);
    if (!charges.ok()) {
      result_.charges_unknown.push_back({std::string(provider_.name()), charges.status(), {}});
      return absl::OkStatus();
    }
    for (const Lease& lease : leases) {
      const auto charge = charges->find(lease.instance_id);
      if (charge == charges->end()) continue;
      RETURN_IF_ERROR(Noted(ledger_.NoteTrafficCharge(lease.lease_id, charge->second)));
      for (SeenInstance& seen : result_.instances) {
        if (!seen.lease.has_value() || seen.lease->lease_id != lease.lease_id) continue;
        ASSIGN_OR_RETURN(*seen.lease, ledger_.Get(lease.lease_id));
      }
    }
    return absl::OkStatus();
  }

  absl::Status SettleIntent(const Lease& lease) {
    if (clock_is_wrong_) {
      result_.unsettled.push_back(lease);
      return absl::OkStatus();
    }
    // The clock went back after an intent that lies in the future: it is older than the listing,
    // too.
    const bool clock_went_back = lease.intended_ms > absl::ToUnixMillis(clock_.Now());
    if (lease.intended_ms < listed_ms_ || clock_went_back) {
      RETURN_IF_ERROR(Noted(ledger_.NoteAbsent(lease.lease_id, listed_ms_)));
    }
    ASSIGN_OR_RETURN(Lease now, ledger_.Get(lease.lease_id));
    if (!IsSurelyAbsent(now)) {
      result_.unsettled.push_back(std::move(now));
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(Noted(ledger_.NotCreated(lease.lease_id, "never listed by the provider")));
    ASSIGN_OR_RETURN(result_.not_created.emplace_back(), ledger_.Get(lease.lease_id));
    return absl::OkStatus();
  }

  Ledger& ledger_;
  Provider& provider_;
  const std::set<std::string>& owners_;
  const ReconcileOptions& options_;
  const int64_t listed_ms_;
  Clock& clock_;
  Reconciliation& result_;
  bool clock_is_wrong_ = false;
  std::map<InstanceId, std::string> open_;  // the ids of open leases
  std::set<std::string> ids_;               // listed
  std::set<std::string> settled_;           // lease ids that were listed
  std::vector<Lease> unreadable_;
  absl::Status unreadable_cause_;
  std::vector<Lease> elsewhere_;  // rented with a key of another account
  absl::Status elsewhere_cause_;
};

struct Listing {
  const ReconcileMarket* market;
  int64_t listed_ms;
  absl::StatusOr<std::vector<Instance>> instances;
};

// Turns wanted machines whose limits have passed into leaks. Asks the machines of all markets at
// once.
void FindDue(const std::vector<Listing>& listings, const WhyDue& why_due, Reconciliation& result) {
  std::vector<DueQuestion> questions;
  std::vector<SeenInstance*> asked;
  for (SeenInstance& seen : result.instances) {
    if (seen.listed.holder != Holder::kWanted || !seen.lease.has_value()) continue;
    const bool wrong_clock =
        std::any_of(result.wrong_clock.begin(), result.wrong_clock.end(),
                    [&seen](const auto& market) { return market.first == seen.provider; });
    if (wrong_clock) continue;
    for (const Listing& listing : listings) {
      if (listing.market->name != seen.provider) continue;
      questions.push_back({listing.market->provider, *seen.lease});
      asked.push_back(&seen);
      break;
    }
  }
  if (questions.empty()) return;
  std::vector<std::string> whys = why_due(questions);
  whys.resize(asked.size());
  for (size_t i = 0; i < asked.size(); ++i) {
    if (whys[i].empty()) continue;
    asked[i]->listed.holder = Holder::kLeak;
    asked[i]->listed.why = std::move(whys[i]);
    asked[i]->due = true;
  }
}

// Asks the nodes of leaks that no node has claimed, by the ledger. Those that are in use are
// wanted, and the ledger learns of the claim.
absl::Status FindServed(Ledger& ledger, const std::vector<Listing>& listings, const Serves& serves,
                        Reconciliation& result) {
  std::vector<ServesQuestion> questions;
  std::vector<SeenInstance*> asked;
  for (SeenInstance& seen : result.instances) {
    if (!seen.ask_node) continue;
    const auto listing = std::find_if(listings.begin(), listings.end(), [&](const Listing& each) {
      return each.market->name == seen.provider;
    });
    questions.push_back({listing->market->provider, seen.listed.instance, seen.listed.lease_id});
    asked.push_back(&seen);
  }
  if (questions.empty()) return absl::OkStatus();
  std::vector<bool> served = serves(questions);
  served.resize(asked.size());
  for (size_t i = 0; i < asked.size(); ++i) {
    if (!served[i]) continue;
    const bool unclaimed = !asked[i]->lease.has_value() || asked[i]->lease->claimed_ms == 0;
    const absl::Status noted =
        unclaimed ? ledger.Claimed(questions[i].lease_id, "")
                  : ledger.SetTrouble(questions[i].lease_id, /*troubled=*/false, 0);
    RETURN_IF_ERROR(NoteFault(noted, result));
    ASSIGN_OR_RETURN(asked[i]->lease, ledger.Get(questions[i].lease_id));
    asked[i]->listed.holder = Holder::kWanted;
    asked[i]->listed.why.clear();
    asked[i]->ask_node = false;
    if (unclaimed) result.back.push_back(*asked[i]->lease);
  }
  return absl::OkStatus();
}

absl::Status StoreListings(Ledger& ledger, const std::vector<Listing>& listings,
                           const Reconciliation& result) {
  for (const Listing& listing : listings) {
    if (!listing.instances.ok()) continue;
    MarketListing note;
    note.provider = listing.market->name;
    note.listed_ms = listing.listed_ms;
    for (const SeenInstance& seen : result.instances) {
      if (seen.provider == note.provider) note.instances.push_back(seen.listed);
    }
    RETURN_IF_ERROR(ledger.StoreListing(note));
  }
  return absl::OkStatus();
}

bool IsStillDue(const WhyDue& why_due, const Provider& provider, const Lease& lease) {
  if (!why_due) return false;
  const std::vector<std::string> whys = why_due({{&provider, lease}});
  return !whys.empty() && !whys[0].empty();
}

// Ends one leak; `ended` becomes the lease's state afterwards.
absl::Status EndLeak(Ledger& ledger, Provider& provider, const SeenInstance& leak, Clock& clock,
                     const RentalHooks& hooks, const WhyDue& why_due, std::optional<Lease>& ended) {
  const std::string& lease_id = leak.listed.lease_id;
  const absl::StatusOr<LeaseLock> lock = LeaseLock::Take(ledger.state_dir(), lease_id, clock);
  if (absl::IsUnavailable(lock.status())) return lock.status();
  // Judge again under the lock, because the questions to machines took time.
  absl::StatusOr<Lease> lease = ledger.Get(lease_id);
  if (absl::IsNotFound(lease.status())) {
    const int64_t quantum_s = absl::ToInt64Seconds(provider.traits().billing_quantum);
    lease = ledger.Adopt(provider.name(), leak.listed.instance, quantum_s, provider.key_print(),
                         /*claimed=*/false);
  }
  if (IsLedgerFault(lease.status())) {
    return EndInstance(provider, leak.listed.instance, clock, hooks);
  }
  RETURN_IF_ERROR(lease.status());
  if (lease->instance_id != leak.listed.instance.id) {
    return EndInstance(provider, leak.listed.instance, clock, hooks);
  }
  if (lease->state == LeaseState::kRented && lease->claimed_ms != 0 &&
      !HasCostItsLimit(*lease, ledger.NowMs()) && !IsTroubled(leak.listed.instance) &&
      !leak.left_behind && !(leak.due && IsStillDue(why_due, provider, *lease))) {
    return absl::UnavailableError(
        leak.due ? "asked again, it does not say so: somebody uses it, or it did not answer"
                 : "another gpuctl has taken it over");
  }
  ReleaseOptions options;
  options.how = absl::StrCat("reaped: ", leak.listed.why);
  options.again = true;
  options.lock = lock.ok() ? &*lock : nullptr;
  ASSIGN_OR_RETURN(ended, Release(ledger, provider, lease_id, clock, hooks, options));
  return absl::OkStatus();
}

}  // namespace

bool IsTroubled(const Instance& instance) {
  return instance.state == Instance::State::kFailed || instance.state == Instance::State::kSilent;
}

std::vector<const SeenInstance*> Reconciliation::Leaks() const {
  std::vector<const SeenInstance*> leaks;
  for (const SeenInstance& seen : instances) {
    if (seen.listed.holder == Holder::kLeak) leaks.push_back(&seen);
  }
  return leaks;
}

std::vector<const SeenInstance*> Reconciliation::Troubled() const {
  std::vector<const SeenInstance*> troubled;
  for (const SeenInstance& seen : instances) {
    if (seen.listed.holder == Holder::kWanted && IsTroubled(seen.listed.instance)) {
      troubled.push_back(&seen);
    }
  }
  return troubled;
}

std::vector<const SeenInstance*> Reconciliation::Lost() const {
  std::vector<const SeenInstance*> lost;
  for (const SeenInstance& seen : instances) {
    if (seen.listed.holder == Holder::kLost) lost.push_back(&seen);
  }
  return lost;
}

absl::StatusOr<Reconciliation> Reconcile(Ledger& ledger,
                                         const std::vector<ReconcileMarket>& markets, Clock& clock,
                                         const ReconcileOptions& options) {
  Reconciliation result;
  std::set<std::string> owners = options.also_owners;
  const absl::StatusOr<std::string> owner = ledger.OwnerId();
  RETURN_IF_ERROR(NoteFault(owner.status(), result));
  if (owner.ok()) owners.insert(*owner);
  std::vector<Listing> listings;
  std::set<std::string> known;
  for (const ReconcileMarket& market : markets) {
    known.insert(market.name);
    const int64_t listed_ms = absl::ToUnixMillis(clock.Now());
    if (market.provider == nullptr) {
      listings.push_back(
          {&market, listed_ms,
           market.unusable.ok() ? absl::UnknownError("it cannot be asked") : market.unusable});
    } else {
      listings.push_back({&market, listed_ms, market.provider->ListInstances()});
    }
  }
  for (const Listing& listing : listings) {
    if (listing.instances.ok()) {
      const std::optional<absl::Duration> skew =
          listing.market->skew ? listing.market->skew() : std::nullopt;
      MarketJudge judge(ledger, *listing.market->provider, owners, options, listing.listed_ms,
                        clock, result);
      if (skew.has_value() && absl::AbsDuration(*skew) > kClockIsWrong) {
        judge.DistrustTheClock();
        result.wrong_clock.emplace_back(listing.market->name, *skew);
      }
      RETURN_IF_ERROR(judge.Run(*listing.instances));
    } else {
      result.unknown.push_back({listing.market->name, listing.instances.status(), {}});
    }
  }
  if (options.serves) RETURN_IF_ERROR(FindServed(ledger, listings, options.serves, result));
  if (options.why_due) FindDue(listings, options.why_due, result);
  RETURN_IF_ERROR(NoteFault(StoreListings(ledger, listings, result), result));
  ASSIGN_OR_RETURN(const std::vector<Lease> open, ledger.List(/*open_only=*/true));
  for (const Lease& lease : open) {
    const auto unknown =
        std::find_if(result.unknown.begin(), result.unknown.end(),
                     [&](const UnknownMarket& m) { return m.name == lease.provider; });
    const bool listed = std::any_of(listings.begin(), listings.end(), [&](const Listing& l) {
      return l.market->name == lease.provider && l.instances.ok();
    });
    if (listed) continue;
    if (unknown != result.unknown.end()) {
      unknown->leases.push_back(lease);
    } else if (known.count(lease.provider) == 0) {
      result.unknown.push_back(
          {lease.provider, absl::UnauthenticatedError("no key for it here"), {lease}});
    }
  }
  return result;
}

absl::StatusOr<ReapReport> Reap(Ledger& ledger, const std::vector<ReconcileMarket>& markets,
                                Clock& clock, const RentalHooks& hooks,
                                const ReapOptions& options) {
  const absl::Duration kPatience = absl::Milliseconds(kListLagMs) + absl::Seconds(1);
  constexpr absl::Duration kPause = absl::Seconds(10);
  ReapReport report;
  // Counted from the first lists, which may take a while. The last ones begin after it.
  absl::Duration end = absl::InfiniteDuration();
  bool told = false;
  for (;;) {
    const absl::Duration began = clock.SinceBoot();
    ASSIGN_OR_RETURN(report.last, Reconcile(ledger, markets, clock, options.reconcile));
    std::vector<const SeenInstance*> leaks = report.last.Leaks();
    for (const SeenInstance* lost : report.last.Lost()) {
      if (options.lost.count(lost->listed.instance.id) > 0) leaks.push_back(lost);
    }
    for (const SeenInstance* leak : leaks) {
      const auto tried = std::find_if(report.reaped.begin(), report.reaped.end(), [&](auto& r) {
        return r.provider == leak->provider && r.instance.id == leak->listed.instance.id;
      });
      if (tried != report.reaped.end()) continue;
      const auto market = std::find_if(markets.begin(), markets.end(),
                                       [&](auto& m) { return m.name == leak->provider; });
      ReapedInstance reaped;
      reaped.provider = leak->provider;
      reaped.instance = leak->listed.instance;
      reaped.why = leak->listed.why;
      reaped.status = EndLeak(ledger, *market->provider, *leak, clock, hooks,
                              options.reconcile.why_due, reaped.lease);
      report.reaped.push_back(std::move(reaped));
    }
    end = std::min(end, clock.SinceBoot() + kPatience);
    const bool cancelled = hooks.cancelled && hooks.cancelled();
    if (!options.wait || report.last.unsettled.empty() || began >= end || cancelled) {
      return report;
    }
    if (!told && hooks.progress) {
      hooks.progress(
          "what was asked for last may not be listed yet: looking again for two minutes");
    }
    told = true;
    clock.SleepFor(kPause);
  }
}

}  // namespace gpuctl
