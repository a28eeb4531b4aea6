// Renting a machine, waiting until it can be reached, and ending its bill: each step is in the
// ledger before the provider hears of it, so that a crash at any point leaves nothing unknown.
#ifndef GPUCTL_PROVISIONING_RENTAL_RENTAL_H_
#define GPUCTL_PROVISIONING_RENTAL_RENTAL_H_

#include <functional>
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

// Calls back to the caller. Both may be empty.
struct RentalHooks {
  std::function<void(absl::string_view line)> progress;
  // Asked at each step, and at least every few seconds; true ends the work (Ctrl-C).
  std::function<bool()> cancelled;
};

struct Rental {
  Lease lease;
  Instance instance;
  // Keep it until the node has claimed the lease (Ledger::Claimed), then drop it. An unclaimed
  // lease that nobody holds is a leak: a killed launch leaves it so.
  LeaseLock lock;
};

// Rents terms.offer. The provider is asked once, never again. When its answer is lost, the account
// is listed for up to two minutes under our label. Errors: as Provider::Rent, nothing bills (the
// message says when that is not certain); CANCELLED: nothing bills, or the message says what does;
// DEADLINE_EXCEEDED: still not known, the intent stays open for `gpuctl reap`.
absl::StatusOr<Rental> Rent(Ledger& ledger, Provider& provider, const LeaseTerms& terms,
                            const RentOptions& options, Clock& clock, const RentalHooks& hooks);

// Ends the bill of a lease, and returns the lease once the provider says that the machine is gone.
// OK when it had ended already. UNAVAILABLE: another gpuctl is at work on it. DEADLINE_EXCEEDED,
// CANCELLED and whatever the provider refuses with: it may still bill, and the message names it.
// `lock` is the lease's when the caller holds it.
struct ReleaseOptions {
  absl::Duration patience = absl::Minutes(5);
  std::string how = "released";
  bool again = false;  // true: end it although the ledger calls it released
  const LeaseLock* lock = nullptr;
};
absl::StatusOr<Lease> Release(Ledger& ledger, Provider& provider, absl::string_view lease_id,
                              Clock& clock, const RentalHooks& hooks,
                              const ReleaseOptions& options = {});

// Ends the bill of an instance without a lease: a duplicate under a label of ours.
absl::Status EndInstance(Provider& provider, const Instance& instance, Clock& clock,
                         const RentalHooks& hooks, absl::Duration patience = absl::Minutes(5));

struct ReadyStage {
  std::string name;      // the provider's words while it lasted
  absl::Duration after;  // from the call to its beginning
};
struct Ready {
  Instance instance;  // with its address
  std::vector<ReadyStage> stages;
  absl::Duration took;
};

// Waits until the provider names an address for the running instance; the caller finds out whether
// ssh answers there. ABORTED: it failed or is gone; release it and exclude its place.
// DEADLINE_EXCEEDED: the same after `patience`. CANCELLED: it bills on.
absl::StatusOr<Ready> WaitReady(Provider& provider, const InstanceId& id, absl::Duration patience,
                                Clock& clock, const RentalHooks& hooks);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_RENTAL_RENTAL_H_
