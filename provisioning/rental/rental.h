// Renting a machine, waiting for its address, and ending its bill. Each step is in the ledger
// before the request to the provider, so that a crash at any point leaves nothing unknown.
#ifndef GPUCTL_PROVISIONING_RENTAL_RENTAL_H_
#define GPUCTL_PROVISIONING_RENTAL_RENTAL_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "provisioning/ledger/lease_lock.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/market/provider.h"

namespace gpuctl {

// The caller's hooks. Both may be empty.
struct RentalHooks {
  std::function<void(absl::string_view line)> progress;
  // A function called at each step, and at least every few seconds. True ends the work (Ctrl-C).
  std::function<bool()> cancelled;
};

struct Rental {
  Lease lease;
  Instance instance;
  // The lease's lock. Keep it until the node has claimed the lease (Ledger::Claimed), then drop it.
  // An unclaimed lease without a lock is a leak, as after a killed launch.
  LeaseLock lock;
};

// True when provider.h promises for this error of Rent that nothing was made.
bool IsRefusal(absl::StatusCode code);

// True when the account's list is whole and has no such instance. Ask this before a single answer
// of NOT_FOUND has consequences: 404 may also come from a proxy.
bool IsUnlisted(Provider& provider, const InstanceId& id);

// Rents terms.offer. It sends the request again only after a refusal with 429, for up to a minute,
// and each time only when a list of the account shows nothing under our label. When the answer is
// lost, it lists the account for up to two minutes and looks for our label. Errors of
// Provider::Rent: nothing bills (the message says when that is not certain). CANCELLED: nothing
// bills, or the message names what does. DEADLINE_EXCEEDED: still not known; the intent stays open
// for `gpuctl reap`.
absl::StatusOr<Rental> Rent(Ledger& ledger, Provider& provider, const LeaseTerms& terms,
                            const RentOptions& options, Clock& clock, const RentalHooks& hooks);

// Ends the bill of a lease. Returns the lease when the provider says that the machine is gone. OK
// when it had ended already, and when it ended and only the ledger could not be written, which it
// tells. UNAVAILABLE: another gpuctl works on it. PERMISSION_DENIED: it was rented with a key of
// another account (CheckAccount); nothing was asked. DEADLINE_EXCEEDED, CANCELLED and any refusal
// by the provider: it may still bill, and the message names it. `lock` is the lease's lock if the
// caller holds it.
struct ReleaseOptions {
  absl::Duration patience = absl::Minutes(5);
  std::string how = "released";
  bool again = false;  // true: end it although the ledger calls it released
  const LeaseLock* lock = nullptr;
};
absl::StatusOr<Lease> Release(Ledger& ledger, Provider& provider, absl::string_view lease_id,
                              Clock& clock, const RentalHooks& hooks,
                              const ReleaseOptions& options = {});

// Records the end of a lease whose machine the market calls gone, without asking for that end: the
// market may be wrong, and then the machine comes back (Ledger::Reopen). It was last known to bill
// at `known_ms`, in Unix milliseconds, and nobody saw its end, so its cost is a range from there
// until now. UNAVAILABLE: another gpuctl works on it. `lock` is the lease's lock if the caller
// holds it.
absl::Status NoteGone(Ledger& ledger, absl::string_view lease_id, Clock& clock, int64_t known_ms,
                      LeaseEnding ending, const LeaseLock* lock = nullptr);

// Looks up the machine of a lease at its market. NOT_FOUND: the market calls it gone, and so does
// its whole list; then that is noted as by NoteGone. PERMISSION_DENIED: CheckAccount. Any other
// error: nothing is known of it now. `known_ms` and `lock` are those of NoteGone.
absl::StatusOr<Instance> LookUp(Ledger& ledger, Provider& provider, const Lease& lease,
                                Clock& clock, int64_t known_ms, const LeaseLock* lock = nullptr);

// Ends the bill of an instance without a lease: a duplicate under one of our labels.
absl::Status EndInstance(Provider& provider, const Instance& instance, Clock& clock,
                         const RentalHooks& hooks, absl::Duration patience = absl::Minutes(5));

struct ReadyStage {
  std::string name;      // the provider's words during the step
  absl::Duration after;  // from the call to its beginning
};
struct Ready {
  Instance instance;  // with its address
  std::vector<ReadyStage> stages;
  absl::Duration took;
};

// Waits until the provider names an address of the running instance; the caller checks whether ssh
// answers there. ABORTED: it failed or is gone; release it and exclude its place.
// DEADLINE_EXCEEDED: the same after `patience`. FAILED_PRECONDITION: its image cannot be pulled,
// there or anywhere; release it. CANCELLED: it still bills.
absl::StatusOr<Ready> WaitReady(Provider& provider, const InstanceId& id, absl::Duration patience,
                                Clock& clock, const RentalHooks& hooks);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_RENTAL_RENTAL_H_
