#include "provisioning/rental/rent_array.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/backoff.h"
#include "common/base/status_macros.h"
#include "provisioning/market/label.h"
#include "provisioning/rental/account.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kLookForTasksWithin = absl::Minutes(2);
constexpr absl::Duration kFirstLookPause = absl::Seconds(2);
constexpr absl::Duration kLongestLookPause = absl::Seconds(10);
constexpr absl::Duration kTaskSlice = absl::Milliseconds(250);

class ArrayRenter {
 public:
  ArrayRenter(Ledger& ledger, Provider& provider, const LeaseTerms& terms, Clock& clock,
              const RentalHooks& hooks)
      : ledger_(ledger),
        provider_(provider),
        terms_(terms),
        clock_(clock),
        hooks_(hooks),
        doing_(absl::StrCat("rent ", terms.offer.ref, " at ", provider.name())) {}

  absl::StatusOr<std::vector<Rental>> Run(int count, int at_once, const RentOptions& options) {
    RETURN_IF_ERROR(IntendAll(count));
    if (Cancelled()) return NothingRented(absl::CancelledError("interrupted"));
    const absl::StatusOr<std::vector<Instance>> rented =
        provider_.RentArray(terms_.offer, options, rentals_.front().lease.label, count, at_once);
    if (rented.ok()) return EnterAll(*rented);
    if (IsRefusal(rented.status().code())) return NothingRented(rented.status());
    return Settle(rented.status());
  }

 private:
  bool Cancelled() const { return hooks_.cancelled && hooks_.cancelled(); }
  void Tell(absl::string_view line) const {
    if (hooks_.progress) hooks_.progress(line);
  }

  // Locks and records all before the request: whatever ends this process, each is found again.
  absl::Status IntendAll(int count) {
    LeaseTerms known = terms_;
    known.quantum_s =
        std::max<int64_t>(1, absl::ToInt64Seconds(provider_.traits().billing_quantum));
    known.key_print = provider_.key_print();
    LearnAccount(ledger_, provider_);
    const std::string any = Ledger::NewLeaseId();
    for (int task = 0; task < count; ++task) {
      const std::string lease_id = TaskLease(any, task);
      ASSIGN_OR_RETURN(LeaseLock lock, LeaseLock::Take(ledger_.state_dir(), lease_id, clock_));
      absl::StatusOr<Lease> lease = ledger_.Intend(lease_id, known);
      if (!lease.ok()) {
        (void)NothingRented(lease.status());
        return lease.status();
      }
      rentals_.push_back({*std::move(lease), Instance(), std::move(lock)});
    }
    return absl::OkStatus();
  }

  // What cannot be recorded stays an intent, and later listings settle it.
  absl::Status NothingRented(const absl::Status& why) {
    for (const Rental& rental : rentals_) {
      (void)ledger_.NotCreated(rental.lease.lease_id, why.message());
    }
    rentals_.clear();
    if (!absl::IsCancelled(why)) return Annotate(why, doing_);
    return absl::CancelledError(
        absl::StrCat(doing_, ": interrupted; nothing was rented, nothing bills"));
  }

  // Looks for the leases in listings, because the answer was lost. The scheduler has all tasks of
  // an array or none; one that is not listed is over, or was ended, and stays an intent.
  absl::StatusOr<std::vector<Rental>> Settle(const absl::Status& outcome) {
    const std::string& first = rentals_.front().lease.label;
    Tell(absl::StrCat("the answer of ", provider_.name(), " was lost (", outcome.message(),
                      "); looking for ", first, " for up to two minutes"));
    const absl::Duration end = clock_.SinceBoot() + kLookForTasksWithin;
    Backoff pauses(kFirstLookPause, kLongestLookPause);
    while (true) {
      const bool last = clock_.SinceBoot() >= end;
      const absl::StatusOr<std::vector<Instance>> all = provider_.ListInstances();
      const std::vector<Instance> found = all.ok() ? Ours(*all) : std::vector<Instance>();
      if (!found.empty()) return EnterAll(found);
      const std::string doubt =
          absl::StrCat("something may run at ", provider_.name(), " under the name ", first,
                       "; gpuctl reap finds out and ends it");
      if (last) {
        return absl::DeadlineExceededError(
            absl::StrCat(doing_, ": ", outcome.message(), "; ", doubt));
      }
      if (Pause(pauses.Next())) {
        return absl::CancelledError(absl::StrCat(doing_, ": interrupted; ", doubt));
      }
    }
  }

  // Returns one instance for each lease that has any.
  std::vector<Instance> Ours(const std::vector<Instance>& all) const {
    std::map<std::string, Instance> by_label;
    for (const Instance& instance : all) by_label.emplace(instance.label, instance);
    std::vector<Instance> found;
    for (const Rental& rental : rentals_) {
      const auto one = by_label.find(rental.lease.label);
      if (one != by_label.end()) found.push_back(one->second);
    }
    return found;
  }

  // Records what was rented. What the ledger cannot record is ended, with the rest.
  absl::StatusOr<std::vector<Rental>> EnterAll(const std::vector<Instance>& instances) {
    std::map<std::string, const Instance*> by_label;
    for (const Instance& instance : instances) by_label[instance.label] = &instance;
    std::vector<Rental> entered;
    absl::Status failed;
    for (Rental& rental : rentals_) {
      const auto one = by_label.find(rental.lease.label);
      if (one == by_label.end()) continue;
      rental.instance = *one->second;
      if (failed.ok()) failed = ledger_.Rented(rental.lease.lease_id, rental.instance);
      entered.push_back(std::move(rental));
    }
    if (!failed.ok()) return EndAll(entered, failed);
    if (Cancelled()) return EndAll(entered, absl::CancelledError("interrupted"));
    for (Rental& rental : entered) {
      ASSIGN_OR_RETURN(rental.lease, ledger_.Get(rental.lease.lease_id));
    }
    return entered;
  }

  absl::Status EndAll(const std::vector<Rental>& entered, const absl::Status& why) {
    absl::Status left;
    for (const Rental& rental : entered) {
      ReleaseOptions release;
      release.how = absl::IsCancelled(why) ? "interrupted" : "it could not be entered";
      release.lock = &rental.lock;
      absl::Status ended =
          Release(ledger_, provider_, rental.lease.lease_id, clock_, {hooks_.progress, {}}, release)
              .status();
      // The ledger does not have its id.
      if (absl::IsFailedPrecondition(ended)) {
        ended = EndInstance(provider_, rental.instance, clock_, {hooks_.progress, {}});
      }
      left.Update(ended);
    }
    RETURN_IF_ERROR(left);
    return absl::Status(why.code(), absl::StrCat(doing_, ": ", why.message(),
                                                 "; all of it was ended, nothing bills"));
  }

  // True when the wait was cancelled.
  bool Pause(absl::Duration duration) {
    const absl::Duration end = clock_.SinceBoot() + duration;
    while (!Cancelled()) {
      const absl::Duration left = end - clock_.SinceBoot();
      if (left <= absl::ZeroDuration()) return false;
      clock_.SleepFor(std::min(left, kTaskSlice));
    }
    return true;
  }

  Ledger& ledger_;
  Provider& provider_;
  const LeaseTerms& terms_;
  Clock& clock_;
  const RentalHooks& hooks_;
  const std::string doing_;
  std::vector<Rental> rentals_;  // without instances before these are known
};

}  // namespace

absl::StatusOr<std::vector<Rental>> RentArray(Ledger& ledger, Provider& provider,
                                              const LeaseTerms& terms, int count, int at_once,
                                              const RentOptions& options, Clock& clock,
                                              const RentalHooks& hooks) {
  if (terms.offer.provider != provider.name() || count < 1 || count > kMostTasks) {
    return absl::InvalidArgumentError(absl::StrCat("rent ", count, " of ", terms.offer.ref, " at ",
                                                   provider.name(), ": it is no array there"));
  }
  return ArrayRenter(ledger, provider, terms, clock, hooks).Run(count, at_once, options);
}

}  // namespace gpuctl
