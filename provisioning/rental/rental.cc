#include "provisioning/rental/rental.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/backoff.h"
#include "common/base/status_macros.h"
#include "provisioning/market/registry_login.h"
#include "provisioning/rental/account.h"
#include "provisioning/rental/kept_logins.h"

namespace gpuctl {
namespace {

// The longest time for which a provider's list may lag behind a create.
constexpr absl::Duration kSettleWithin = absl::Minutes(2);
constexpr absl::Duration kFirstPause = absl::Seconds(2);
constexpr absl::Duration kLongestPause = absl::Seconds(10);
// The longest time from the first to the last request for an offer of a provider that is busy.
constexpr absl::Duration kBusyPatience = absl::Minutes(1);
constexpr absl::Duration kFirstReadyPause = absl::Seconds(1);
constexpr absl::Duration kReadyPause = absl::Seconds(5);
// The wait for an end before the next request.
constexpr absl::Duration kAskAgain = absl::Seconds(30);
// The longest time for which a provider's reads may not know a new instance.
constexpr absl::Duration kDescribeLag = absl::Minutes(1);
// The time within which a machine's own port follows the market's relay.
constexpr absl::Duration kDirectPortLag = absl::Seconds(45);
constexpr absl::Duration kSlice = absl::Milliseconds(250);

void Tell(const RentalHooks& hooks, absl::string_view line) {
  if (hooks.progress) hooks.progress(line);
}

bool Cancelled(const RentalHooks& hooks) { return hooks.cancelled && hooks.cancelled(); }

// Waits. True when the wait was cancelled.
bool Pause(Clock& clock, absl::Duration duration, const RentalHooks& hooks) {
  const absl::Duration end = clock.SinceBoot() + duration;
  for (;;) {
    if (Cancelled(hooks)) return true;
    const absl::Duration left = end - clock.SinceBoot();
    if (left <= absl::ZeroDuration()) return false;
    clock.SleepFor(hooks.cancelled ? std::min(left, kSlice) : left);
  }
}

bool WaitingHelps(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
      return false;
    default:
      return true;
  }
}

std::string MayBill(absl::string_view provider, const InstanceId& id, double usd_per_hour) {
  return absl::StrFormat(
      "instance %s at %s may still bill%s; gpuctl reap tries again, the provider's own pages end "
      "it too",
      id, provider, usd_per_hour > 0 ? absl::StrFormat(" ($%.2f/h)", usd_per_hour) : "");
}

// Terminates until Describe says NOT_FOUND. `young_for`: for so long from now the provider may not
// know the instance yet, so that NOT_FOUND for both says nothing. Sets `alive_ms` to the time when
// it was last seen to run.
absl::Status EndAndConfirm(Provider& provider, const InstanceId& id, double usd_per_hour,
                           absl::Duration young_for, Clock& clock, const RentalHooks& hooks,
                           absl::Duration patience, int64_t& alive_ms) {
  const absl::Duration end = clock.SinceBoot() + patience;
  const absl::Duration grown = clock.SinceBoot() + young_for;
  const absl::Duration silence = provider.traits().silence;
  absl::Duration heard = clock.SinceBoot();
  bool accepted = false, known = false, told = false;
  Backoff pauses(kFirstPause, kLongestPause);
  absl::Duration ask_at = clock.SinceBoot();
  absl::Status last = absl::OkStatus();
  const auto fail = [&](absl::StatusCode code, absl::string_view cause) {
    return absl::Status(code, absl::StrCat("end ", id, ": ", cause, "; ",
                                           MayBill(provider.name(), id, usd_per_hour)));
  };
  for (;;) {
    if (clock.SinceBoot() >= ask_at) {
      last = provider.Terminate(id);
      // Accepted once more, it is no nearer to its end.
      if (last.ok() && !accepted) heard = clock.SinceBoot();
      accepted = accepted || last.ok();
      if (last.ok()) ask_at = clock.SinceBoot() + kAskAgain;
      if (absl::IsNotFound(last)) last = absl::OkStatus();
      if (!last.ok() && !WaitingHelps(last.code())) return fail(last.code(), last.message());
    }
    const int64_t looked_ms = absl::ToUnixMillis(clock.Now());
    const absl::StatusOr<Instance> now = provider.Describe(id);
    const bool gone = absl::IsNotFound(now.status());
    if (now.ok() || gone) heard = clock.SinceBoot();
    known = known || now.ok() || clock.SinceBoot() >= grown;
    // Without an accepted end one answer is not enough: 404 may also come from a proxy.
    if (gone && ((accepted && last.ok()) || (known && IsUnlisted(provider, id)))) {
      return absl::OkStatus();
    }
    if (gone && !known && !told) {
      told = true;
      Tell(hooks, absl::StrCat(provider.name(), " does not know ", id,
                               " yet, which is new; asking "
                               "for its end again for up to ",
                               absl::FormatDuration(
                                   absl::Ceil(grown - clock.SinceBoot(), absl::Seconds(1)))));
    }
    if (!now.ok()) {
      if (!gone) last = now.status();
      if (!WaitingHelps(last.code())) return fail(last.code(), last.message());
    } else if (now->state != Instance::State::kStopping) {
      alive_ms = looked_ms;
    }
    if (clock.SinceBoot() >= end) {
      return fail(absl::StatusCode::kDeadlineExceeded,
                  last.ok() ? "the provider still shows it" : last.message());
    }
    if (clock.SinceBoot() - heard >= silence) {
      return fail(absl::StatusCode::kDeadlineExceeded,
                  absl::StrCat(accepted ? "it was told to end, and that cannot be confirmed: " : "",
                               last.message()));
    }
    if (Pause(clock, pauses.Next(), hooks)) {
      return fail(absl::StatusCode::kCancelled, "interrupted before the provider called it gone");
    }
  }
}

// Returns the instances that have this label.
std::vector<Instance> Under(absl::string_view label, const std::vector<Instance>& all) {
  std::vector<Instance> found;
  std::copy_if(all.begin(), all.end(), std::back_inserter(found),
               [label](const Instance& i) { return i.label == label; });
  return found;
}

// The part of Rent after a create with unknown outcome.
class Settlement {
 public:
  Settlement(Provider& provider, const Lease& lease, Clock& clock, const RentalHooks& hooks)
      : provider_(provider), lease_(lease), clock_(clock), hooks_(hooks) {}

  // Returns everything under our label; empty when two minutes of listing showed nothing.
  absl::StatusOr<std::vector<Instance>> Find(const absl::Status& outcome) {
    Tell(hooks_, absl::StrCat("the answer of ", provider_.name(), " was lost (", outcome.message(),
                              "); looking for ", lease_.label, " for up to two minutes"));
    const absl::Duration end = clock_.SinceBoot() + kSettleWithin;
    Backoff pauses(kFirstPause, kLongestPause);
    for (;;) {
      const bool last = clock_.SinceBoot() >= end;
      const absl::StatusOr<std::vector<Instance>> all = provider_.ListInstances();
      std::vector<Instance> found;
      if (all.ok()) found = Under(lease_.label, *all);
      if (!found.empty() || last) return found;
      if (Pause(clock_, pauses.Next(), hooks_)) {
        return absl::CancelledError(absl::StrCat("interrupted; ", Doubt()));
      }
    }
  }

  std::string Doubt() const {
    return absl::StrFormat(
        "something may bill ($%.2f/h) at %s under the name %s; gpuctl reap finds out and ends it",
        lease_.price_usd_per_hour, provider_.name(), lease_.label);
  }

 private:
  Provider& provider_;
  const Lease& lease_;
  Clock& clock_;
  const RentalHooks& hooks_;
};

absl::Status NothingRented(absl::string_view provider) {
  return absl::CancelledError(
      absl::StrCat("rent at ", provider, ": interrupted; nothing was rented, nothing bills"));
}

// Asks for the offer, and again while the provider asks us to wait. A provider may refuse a request
// and execute it, so a list is read before each repetition. Returns the new instance, or those
// under our label, or the error of Provider::Rent.
absl::StatusOr<std::vector<Instance>> RentPatiently(Provider& provider, const Lease& lease,
                                                    const Offer& offer, const RentOptions& options,
                                                    Clock& clock, const RentalHooks& hooks) {
  const absl::Duration end = clock.SinceBoot() + kBusyPatience;
  Backoff pauses(kFirstPause, kLongestPause);
  for (;;) {
    absl::StatusOr<Instance> rented = provider.Rent(offer, options, lease.label);
    if (rented.ok() && rented->id.empty()) rented = absl::UnknownError("it named no instance");
    // What is said of it goes to the terminal and into the ledger.
    if (!rented.ok() && options.registry_login.has_value()) {
      rented = WithoutPassword(rented.status(), *options.registry_login);
    }
    if (rented.ok()) return std::vector<Instance>{*std::move(rented)};
    if (!IsBusy(rented.status())) return rented.status();
    const absl::Duration pause = pauses.Next();
    if (clock.SinceBoot() + pause > end || Pause(clock, pause, hooks)) return rented.status();
    const absl::StatusOr<std::vector<Instance>> all = provider.ListInstances();
    if (!all.ok()) {
      return absl::UnavailableError(
          absl::StrCat(rented.status().message(), "; not asked again: ", all.status().message()));
    }
    std::vector<Instance> found = Under(lease.label, *all);
    if (!found.empty()) return found;
  }
}

// Returns the instance in the provider's answer, or those in listings when the answer was lost.
absl::StatusOr<std::vector<Instance>> Create(Ledger& ledger, Provider& provider, const Lease& lease,
                                             const Offer& offer, const RentOptions& options,
                                             Clock& clock, const RentalHooks& hooks) {
  absl::StatusOr<std::vector<Instance>> rented =
      RentPatiently(provider, lease, offer, options, clock, hooks);
  if (rented.ok()) return rented;
  if (IsRefusal(rented.status().code())) {
    // If this cannot be recorded, the intent stays open and later listings settle it.
    ledger.NotCreated(lease.lease_id, rented.status().message()).IgnoreError();
    return rented.status();
  }
  Settlement settlement(provider, lease, clock, hooks);
  absl::StatusOr<std::vector<Instance>> found = settlement.Find(rented.status());
  if (!found.ok() || !found->empty()) return found;
  return absl::DeadlineExceededError(
      absl::StrCat(rented.status().message(), "; ", settlement.Doubt()));
}

// Keeps one instance, a running one if there is one, and ends the others under the same label.
absl::Status KeepOne(Provider& provider, std::vector<Instance>& found, Clock& clock,
                     const RentalHooks& hooks) {
  std::stable_sort(found.begin(), found.end(), [](const Instance& a, const Instance& b) {
    const auto rank = [](const Instance& i) {
      return i.state == Instance::State::kRunning ? 0 : 1;
    };
    return rank(a) < rank(b);
  });
  absl::Status status;
  while (found.size() > 1) {
    Tell(hooks, absl::StrCat("ending the duplicate ", found.back().id));
    const absl::Status ended = EndInstance(provider, found.back(), clock, hooks);
    if (status.ok()) status = ended;
    found.pop_back();
  }
  return status;
}

}  // namespace

bool IsRefusal(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kInvalidArgument:
      return true;
    default:
      return false;
  }
}

bool IsUnlisted(Provider& provider, const InstanceId& id) {
  const absl::StatusOr<std::vector<Instance>> all = provider.ListInstances();
  return all.ok() && std::none_of(all->begin(), all->end(),
                                  [&id](const Instance& instance) { return instance.id == id; });
}

absl::StatusOr<Rental> Rent(Ledger& ledger, Provider& provider, const LeaseTerms& terms,
                            const RentOptions& options, Clock& clock, const RentalHooks& hooks) {
  if (terms.offer.provider != provider.name()) {
    return absl::InvalidArgumentError(absl::StrCat("rent ", terms.offer.ref, " at ",
                                                   provider.name(), ": it is an offer of ",
                                                   terms.offer.provider));
  }
  const std::string lease_id = Ledger::NewLeaseId();
  ASSIGN_OR_RETURN(LeaseLock lock, LeaseLock::Take(ledger.state_dir(), lease_id, clock));
  if (Cancelled(hooks)) return NothingRented(provider.name());
  UniqueFd logins;  // until the create is done
  if (options.registry_login.has_value()) {
    ASSIGN_OR_RETURN(logins, HoldKeptLogins(ledger, provider));
  }
  LeaseTerms known = terms;
  known.quantum_s = std::max<int64_t>(1, absl::ToInt64Seconds(provider.traits().billing_quantum));
  known.key_print = provider.key_print();
  LearnAccount(ledger, provider);
  ASSIGN_OR_RETURN(Lease lease, ledger.Intend(lease_id, known));
  if (Cancelled(hooks)) {
    RETURN_IF_ERROR(ledger.NotCreated(lease_id, "interrupted"));
    return NothingRented(provider.name());
  }
  const std::string doing = absl::StrCat("rent ", terms.offer.ref, " at ", provider.name());
  absl::StatusOr<std::vector<Instance>> found =
      Create(ledger, provider, lease, terms.offer, options, clock, hooks);
  logins.reset();
  if (!found.ok()) return Annotate(found.status(), doing);
  const absl::Status duplicates = KeepOne(provider, *found, clock, hooks);
  const Instance instance = std::move(found->front());
  // If the ledger cannot record the instance, end it now, because nobody would end it later.
  const absl::Status entered = ledger.Rented(lease_id, instance);
  if (!entered.ok()) {
    RETURN_IF_ERROR(Annotate(EndInstance(provider, instance, clock, hooks), entered.message()));
    return Annotate(entered, absl::StrCat(doing, ": ended again, as it could not be entered"));
  }
  if (instance.ends_ms > 0) RETURN_IF_ERROR(ledger.SetEnds(lease_id, instance.ends_ms));
  if (Cancelled(hooks) || !duplicates.ok()) {
    ReleaseOptions release;
    release.how = duplicates.ok() ? "interrupted" : "a duplicate of it could not be ended";
    release.lock = &lock;
    // The user who cancelled wants it gone, so this cannot be cancelled.
    RETURN_IF_ERROR(
        Release(ledger, provider, lease_id, clock, {hooks.progress, {}}, release).status());
    RETURN_IF_ERROR(duplicates);
    return absl::CancelledError(
        absl::StrCat(doing, ": interrupted; ", instance.id, " was ended, nothing bills"));
  }
  ASSIGN_OR_RETURN(lease, ledger.Get(lease_id));
  return Rental{std::move(lease), instance, std::move(lock)};
}

absl::Status EndInstance(Provider& provider, const Instance& instance, Clock& clock,
                         const RentalHooks& hooks, absl::Duration patience) {
  int64_t alive_ms = 0;
  // The provider has shown it.
  return EndAndConfirm(provider, instance.id, instance.price_usd_per_hour, absl::ZeroDuration(),
                       clock, hooks, patience, alive_ms);
}

absl::StatusOr<Lease> Release(Ledger& ledger, Provider& provider, absl::string_view lease_id,
                              Clock& clock, const RentalHooks& hooks,
                              const ReleaseOptions& options) {
  absl::StatusOr<LeaseLock> own = LeaseLock();
  if (options.lock == nullptr) own = LeaseLock::Take(ledger.state_dir(), lease_id, clock);
  // A lock that cannot be made, on a disk that is full, is no reason to let a machine bill.
  if (absl::IsUnavailable(own.status())) return own.status();
  ASSIGN_OR_RETURN(Lease lease, ledger.Get(lease_id));
  if (lease.state == LeaseState::kNotCreated ||
      (lease.state == LeaseState::kReleased && !options.again)) {
    return lease;
  }
  if (lease.provider != provider.name()) {
    return absl::InvalidArgumentError(absl::StrCat("release ", lease.label, " at ", provider.name(),
                                                   ": it was rented at ", lease.provider));
  }
  if (lease.instance_id.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("release ", lease.label,
                     ": it is not known yet whether it was created; gpuctl reap finds "
                     "out"));
  }
  RETURN_IF_ERROR(CheckAccount(ledger, provider, lease));
  // The bill comes first: a ledger that cannot be written ends it all the same.
  const int64_t asked_ms = ledger.NowMs();
  const absl::Status noted = ledger.Releasing(lease_id);
  if (!noted.ok() && !IsLedgerFault(noted)) return noted;
  ASSIGN_OR_RETURN(lease, ledger.Get(lease_id));
  if (lease.releasing_ms == 0) lease.releasing_ms = asked_ms;
  int64_t alive_ms = lease.seen_ms;
  // A machine that a node has claimed was known to its market.
  const absl::Duration age = absl::Milliseconds(ledger.NowMs() - lease.rented_ms);
  const absl::Duration young_for =
      lease.claimed_ms > 0 ? absl::ZeroDuration()
                           : std::clamp(kSettleWithin - age, absl::ZeroDuration(), kSettleWithin);
  RETURN_IF_ERROR(EndAndConfirm(provider, lease.instance_id, lease.usd_per_hour(), young_for, clock,
                                hooks, options.patience, alive_ms));
  const int64_t ended_after_ms = BilledUntil(lease, alive_ms);
  const absl::Status written = ledger.Released(lease_id, ended_after_ms, options.how);
  if (written.ok()) return ledger.Get(lease_id);
  if (!IsLedgerFault(written)) return written;
  Tell(hooks, absl::StrCat(lease.instance_id, " at ", provider.name(),
                           " is gone, but that could not be written down: ", written.message()));
  lease.state = LeaseState::kReleased;
  lease.how_ended = options.how;
  lease.ended_after_ms = ended_after_ms;
  lease.ended_ms = ledger.NowMs();
  return lease;
}

absl::Status NoteGone(Ledger& ledger, absl::string_view lease_id, Clock& clock, int64_t known_ms,
                      LeaseEnding ending, const LeaseLock* lock) {
  absl::StatusOr<LeaseLock> own = LeaseLock();
  if (lock == nullptr) own = LeaseLock::Take(ledger.state_dir(), lease_id, clock);
  RETURN_IF_ERROR(own.status());
  ASSIGN_OR_RETURN(const Lease lease, ledger.Get(lease_id));
  if (lease.state != LeaseState::kRented) return absl::OkStatus();
  return ledger.Released(lease_id, std::max(known_ms, lease.seen_ms), HowEnded(ending));
}

absl::StatusOr<Instance> LookUp(Ledger& ledger, Provider& provider, const Lease& lease,
                                Clock& clock, int64_t known_ms, const LeaseLock* lock) {
  RETURN_IF_ERROR(CheckAccount(ledger, provider, lease));
  absl::StatusOr<Instance> instance = provider.Describe(lease.instance_id);
  if (!absl::IsNotFound(instance.status())) return instance;
  if (!IsUnlisted(provider, lease.instance_id)) {
    return absl::UnavailableError(absl::StrCat(provider.name(), " calls ", lease.instance_id,
                                               " gone, and its list does not"));
  }
  const LeaseEnding ending =
      IsOwnEnd(instance.status()) ? LeaseEnding::kGone : LeaseEnding::kPreempted;
  // Another command may be doing the same.
  (void)NoteGone(ledger, lease.lease_id, clock, known_ms, ending, lock);
  return instance;
}

absl::StatusOr<Ready> WaitReady(Provider& provider, const InstanceId& id, absl::Duration patience,
                                Clock& clock, const RentalHooks& hooks) {
  const std::string doing = absl::StrCat("wait for ", id, " at ", provider.name());
  const absl::Duration begin = clock.SinceBoot();
  Backoff pauses(kFirstReadyPause, kReadyPause);
  Ready ready;
  absl::Status trouble;  // of the last look
  absl::Duration relayed_from = absl::InfiniteDuration();
  for (;;) {
    const absl::StatusOr<Instance> now = provider.Describe(id);
    const absl::Duration after = clock.SinceBoot() - begin;
    trouble = now.status();
    if (now.ok()) {
      const std::string stage = now->status.empty() ? "starting" : now->status;
      if (ready.stages.empty() || ready.stages.back().name != stage) {
        ready.stages.push_back({stage, after});
        Tell(hooks, absl::StrCat(id, ": ", stage));
      }
      if (now->image_fails) {
        return absl::FailedPreconditionError(
            absl::StrCat(doing, ": its image cannot be pulled: ", stage));
      }
      // Nothing is on it yet that would be worth waiting for.
      if (now->held || now->state == Instance::State::kFailed ||
          now->state == Instance::State::kSilent || now->state == Instance::State::kStopping) {
        return absl::AbortedError(absl::StrCat(doing, ": it will not come up: ", stage));
      }
      const bool running =
          now->state == Instance::State::kRunning && !now->suspended && now->address.has_value();
      if (running && now->relayed && relayed_from == absl::InfiniteDuration()) relayed_from = after;
      if (running && (!now->relayed || after - relayed_from >= kDirectPortLag)) {
        ready.instance = *now;
        ready.took = after;
        return ready;
      }
    } else if (absl::IsNotFound(trouble) && after >= kDescribeLag) {
      const std::string words = WordsOfGone(trouble);
      return absl::AbortedError(
          absl::StrCat(doing, ": the provider ended it", words.empty() ? "" : ": ", words));
    } else if (!WaitingHelps(trouble.code())) {
      return Annotate(trouble, doing);
    }
    if (after >= patience) {
      return absl::DeadlineExceededError(
          absl::StrCat(doing, ": no address after ", absl::FormatDuration(patience), ": ",
                       !trouble.ok()          ? trouble.message()
                       : ready.stages.empty() ? "nothing was heard of it"
                                              : ready.stages.back().name));
    }
    if (Pause(clock, pauses.Next(), hooks)) {
      return absl::CancelledError(absl::StrCat(doing, ": interrupted; it bills on"));
    }
  }
}

}  // namespace gpuctl
