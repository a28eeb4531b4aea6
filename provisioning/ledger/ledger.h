// What we pay for: SQLite, one file, safe to use from several processes at once. Every change is on
// disk before the call returns. Secrets never enter it.
#ifndef GPUCTL_PROVISIONING_LEDGER_LEDGER_H_
#define GPUCTL_PROVISIONING_LEDGER_LEDGER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "provisioning/ledger/lease.h"
#include "provisioning/ledger/listing.h"
#include "provisioning/market/types.h"

struct sqlite3;

namespace gpuctl {

// What is known before a machine is asked for.
struct LeaseTerms {
  Offer offer;
  int64_t quantum_s = 1;
  LeaseLimits limits;
  std::string purpose;
  std::string run_id;    // the run it is for; empty: none yet
  std::string run_name;  // its name
};

// Used by one thread. Ids are lease ids; one that is not there is NOT_FOUND, a step that its state
// does not allow FAILED_PRECONDITION; repeating a step is OK and changes nothing.
class Ledger {
 public:
  // <state_dir>/ledger.db; makes it and the directory. FAILED_PRECONDITION when a newer gpuctl made
  // it.
  static absl::StatusOr<std::unique_ptr<Ledger>> Open(const std::string& state_dir, Clock& clock);
  // The same, or null where there is none yet.
  static absl::StatusOr<std::unique_ptr<Ledger>> OpenIfThere(const std::string& state_dir,
                                                             Clock& clock);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  const std::string& state_dir() const { return state_dir_; }
  int64_t NowMs() const { return absl::ToUnixMillis(clock_.Now()); }
  // Random and made once; 8 hex digits.
  absl::StatusOr<std::string> OwnerId();
  // An id for a new lease; to take its lock with before Intend.
  static std::string NewLeaseId();

  // Before the provider is asked.
  absl::StatusOr<Lease> Intend(absl::string_view lease_id, const LeaseTerms& terms);
  // The provider has it. Its price replaces the offered one where it says one.
  absl::Status Rented(absl::string_view lease_id, const Instance& instance);
  // Only for an intent of which it is certain.
  absl::Status NotCreated(absl::string_view lease_id, absl::string_view why);
  // The node enforces the limits from now on, so that the laptop may go.
  absl::Status Claimed(absl::string_view lease_id, absl::string_view node_id);
  absl::Status Releasing(absl::string_view lease_id);
  // The provider says that it is gone. Its bill ended after `ended_after_ms` and before now.
  absl::Status Released(absl::string_view lease_id, int64_t ended_after_ms, absl::string_view how);
  // Something under our label that is not in the books any more: enters them in order to end it.
  absl::StatusOr<Lease> AdoptForRelease(absl::string_view provider, const Instance& instance,
                                        int64_t quantum_s);

  // Another run begins to use the machine, under limits of its own (launch on a warm one).
  absl::Status UsedBy(absl::string_view lease_id, absl::string_view run_id,
                      absl::string_view run_name, const LeaseLimits& limits);
  absl::Status SetAddress(absl::string_view lease_id, const SshAddress& address);
  // It was known to bill at `seen_ms`, at this price (0: not told).
  absl::StatusOr<bool> Seen(absl::string_view lease_id, int64_t seen_ms, double usd_per_hour);
  // A whole listing did not have what this open intent is about, and nobody was at work on it.
  absl::Status NoteAbsent(absl::string_view lease_id, int64_t listed_ms);

  absl::StatusOr<Lease> Get(absl::string_view lease_id);
  // Oldest first.
  absl::StatusOr<std::vector<Lease>> List(bool open_only);
  // The newest lease that the run used; absent when it used none.
  absl::StatusOr<std::optional<Lease>> OfRun(absl::string_view run_id);

  absl::Status Exclude(absl::string_view place, absl::Duration how_long, absl::string_view reason);
  // Those that have not expired.
  absl::StatusOr<std::vector<ExcludedPlace>> Excluded();

  // The price rises that wait at a market, as it has just listed them.
  absl::Status StorePriceRises(absl::string_view provider, const std::vector<PriceRise>& rises);
  // Those of leases that bill, as last stored.
  struct StoredPriceRise {
    Lease lease;
    PriceRise rise;
  };
  absl::StatusOr<std::vector<StoredPriceRise>> PriceRises();

  absl::Status StoreListing(const MarketListing& listing);
  absl::StatusOr<std::vector<MarketListing>> LastListings();

  // Called before each change (done = false; an error: the change fails) and after it is on disk.
  // For tests. Empty removes it.
  using WriteHook = std::function<absl::Status(absl::string_view change, bool done)>;
  void SetWriteHook(WriteHook hook) { write_hook_ = std::move(hook); }
  // Sets the hook that every ledger opened later begins with. Call it before there are threads.
  static void HookEveryLedger(WriteHook hook);

 private:
  Ledger(sqlite3* database, std::string state_dir, Clock& clock)
      : database_(database), state_dir_(std::move(state_dir)), clock_(clock) {}
  absl::Status Migrate();
  absl::Status Write(absl::string_view change, const std::function<absl::Status()>& body);
  absl::Status CheckStep(absl::string_view lease_id, absl::string_view doing);
  absl::StatusOr<std::vector<Lease>> Select(const std::string& where,
                                            const std::vector<std::string>& values);

  sqlite3* database_;
  const std::string state_dir_;
  Clock& clock_;
  WriteHook write_hook_;
};

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_LEDGER_LEDGER_H_
