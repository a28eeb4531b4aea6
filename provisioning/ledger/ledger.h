// The ledger of the machines that we pay for: one SQLite file, safe to use from several processes
// at once. Every change is on disk before the call returns. It has no secrets.
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

// The data of a lease before the request to the provider.
struct LeaseTerms {
  Offer offer;
  int64_t quantum_s = 1;
  LeaseLimits limits;
  std::string purpose;
  std::string host_key;   // the public part of the host key that the machine gets; empty: none
  std::string key_print;  // Provider::key_print; Rent sets it
  std::string run_id;     // the run it is for; empty: none yet
  std::string run_name;   // its name
  int run_gpus = LeaseUse::kWhole;  // of LeaseUse
};

// True when a change of the ledger failed, or was not allowed: a fault of this machine, not of a
// market.
bool IsLedgerFault(const absl::Status& status);

// Where a ledger belongs. A ledger that was copied from somewhere else gets an owner id of its own.
struct LedgerHome {
  std::string machine;    // this computer, in any words without a newline; empty: not known
  std::string owner_dir;  // keeps the owner id for the case that the ledger is lost; empty: nowhere
};

// The leases. Used by one thread. Ids are lease ids. NOT_FOUND for an unknown id;
// FAILED_PRECONDITION for a step that the lease's state does not allow. A repeated step is OK and
// changes nothing.
class Ledger {
 public:
  // Opens <state_dir>/ledger.db; makes it and the directory when they are missing.
  // FAILED_PRECONDITION when a newer gpuctl made it.
  static absl::StatusOr<std::unique_ptr<Ledger>> Open(const std::string& state_dir, Clock& clock,
                                                      LedgerHome home = {});
  // Opens the ledger, or returns null where there is none yet.
  static absl::StatusOr<std::unique_ptr<Ledger>> OpenIfThere(const std::string& state_dir,
                                                             Clock& clock, LedgerHome home = {});
  // Opens a copy in memory of a ledger that cannot be written, to end bills with. What is recorded
  // in it is lost: a later reconciliation with the real one finds it out again.
  static absl::StatusOr<std::unique_ptr<Ledger>> OpenCopy(const std::string& state_dir,
                                                          Clock& clock, LedgerHome home = {});
  // Renames a damaged ledger, so that the next Open makes a new one. Returns its new name; empty
  // when it is not damaged, or no more, because another process did this.
  static absl::StatusOr<std::string> SetAside(const std::string& state_dir, Clock& clock);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // DATA_LOSS when SQLite finds the file damaged; reads all of it.
  absl::Status Check();

  const std::string& state_dir() const { return state_dir_; }
  int64_t NowMs() const { return absl::ToUnixMillis(clock_.Now()); }
  // Returns this ledger's owner id: 8 random hex digits, made once for each home. A ledger that was
  // copied here, while the original is still in its place, gets another one; so does one from
  // another computer. A new ledger in the place of a lost one gets the lost one's.
  absl::StatusOr<std::string> OwnerId();
  // Returns an id for a new lease. Take its lock before Intend.
  static std::string NewLeaseId();

  // Records an intent. Call it before the request to the provider.
  absl::StatusOr<Lease> Intend(absl::string_view lease_id, const LeaseTerms& terms);
  // Records the rented instance. Its price, if the provider tells one, replaces the offered price.
  absl::Status Rented(absl::string_view lease_id, const Instance& instance);
  // Records that an intent was not created. Only when that is certain.
  absl::Status NotCreated(absl::string_view lease_id, absl::string_view why);
  // Records that the node enforces the limits from now on, so that the laptop may leave.
  absl::Status Claimed(absl::string_view lease_id, absl::string_view node_id);
  absl::Status Releasing(absl::string_view lease_id);
  // Records that the provider says it is gone. Its bill ended after `ended_after_ms` and before
  // now.
  absl::Status Released(absl::string_view lease_id, int64_t ended_after_ms, absl::string_view how);
  // Takes back the end of a lease whose machine bills after all. Only where its market had called
  // it gone, and nobody here had asked for its end.
  absl::Status Reopen(absl::string_view lease_id);
  // Enters an instance under a gpuctl's label that the ledger does not have any more: in order to
  // end it, or, when `claimed`, as one that a run uses and whose node enforces its limits. Its bill
  // may have begun at `begun_ms`, in Unix milliseconds, where its provider does not say when; 0:
  // not known, so that it counts from now on.
  absl::StatusOr<Lease> Adopt(absl::string_view provider, const Instance& instance,
                              int64_t quantum_s, absl::string_view key_print, bool claimed,
                              int64_t begun_ms = 0);

  // Records that another run begins to use the machine, under its own limits: `beside` others, or
  // on an idle machine, where all earlier uses are over. `gpus` is that of LeaseUse.
  absl::Status UsedBy(absl::string_view lease_id, absl::string_view run_id,
                      absl::string_view run_name, const LeaseLimits& limits,
                      int gpus = LeaseUse::kWhole, bool beside = false);
  // Takes back UsedBy: the run begins on another machine, and this one had the limits `before`.
  absl::Status NotUsedBy(absl::string_view lease_id, absl::string_view run_id,
                         const LeaseLimits& before);
  // Records the name that the list of runs gave to a run. A machine is rented before the run is in
  // that list, so what UsedBy and Intend noted may lack the run's number.
  absl::Status NameRun(absl::string_view run_id, absl::string_view run_name);
  // Records that a run ended at `ended_ms`, by this laptop's clock, and uses no machine any more.
  // Does nothing when it is known, or it used none.
  absl::Status UseEnded(absl::string_view run_id, int64_t ended_ms);
  // Returns the ids of the runs that use a machine, as far as is known here.
  absl::StatusOr<std::vector<std::string>> UsingRuns();
  absl::Status SetAddress(absl::string_view lease_id, const SshAddress& address);
  // Records that it was there at `seen_ms`, at this hourly price in USD; absent: not told. True
  // when the price is new. It is then as old as `changed_by_ms` at least, where that is not 0.
  absl::StatusOr<bool> Seen(absl::string_view lease_id, int64_t seen_ms,
                            std::optional<double> usd_per_hour, int64_t changed_by_ms = 0);
  // Records all that a look at its machine showed: that it was there, its prices, its contract's
  // end. True when the price is new. What its host has taken back has its new price from then on.
  absl::StatusOr<bool> Look(absl::string_view lease_id, int64_t seen_ms, const Instance& instance);
  // Records when its host takes it back. Nothing is written when that is known.
  absl::Status SetEnds(absl::string_view lease_id, int64_t ends_ms);
  // Records the prices of its traffic, in USD per 10^9 bytes. Nothing is written when they are
  // known.
  absl::Status SetTrafficPrices(absl::string_view lease_id, double upload_usd_per_gb,
                                double download_usd_per_gb);
  // Records the node's count of all bytes that the machine has sent and received. What is new is
  // charged to the run that uses it now, at the present prices. A count below an earlier one began
  // again at 0.
  absl::Status NoteTraffic(absl::string_view lease_id, int64_t sent_bytes, int64_t received_bytes);
  // Records what its market has charged for its traffic so far, in USD; only where that is more
  // than it was before.
  absl::Status NoteTrafficCharge(absl::string_view lease_id, double usd);
  // Records that a look at `seen_ms` showed it out of order, or in order again.
  absl::Status SetTrouble(absl::string_view lease_id, bool troubled, int64_t seen_ms);
  // Records that a whole listing did not show this open lease's instance, while nobody held its
  // lock. Where the clock went back, the time of its absence begins anew.
  absl::Status NoteAbsent(absl::string_view lease_id, int64_t listed_ms);

  // Records the key that shows a lease whose key is not known.
  absl::Status SetKey(absl::string_view lease_id, absl::string_view key_print);
  // Returns the account of a market's key, as it was noted; empty when it is not known.
  absl::StatusOr<std::string> AccountOf(absl::string_view provider, absl::string_view key_print);
  absl::Status NoteAccount(absl::string_view provider, absl::string_view key_print,
                           absl::string_view account);
  // Records that two keys belong to one account.
  absl::Status JoinAccounts(absl::string_view provider, absl::string_view one,
                            absl::string_view other);
  // True when the lease was rented with this key or with one of the same account, or when that is
  // not known of one of them.
  absl::StatusOr<bool> IsOfAccount(const Lease& lease, absl::string_view key_print);

  absl::StatusOr<Lease> Get(absl::string_view lease_id);
  // Returns the leases, oldest first.
  absl::StatusOr<std::vector<Lease>> List(bool open_only);
  // Returns the leases that are open or were used by one of these runs, oldest first.
  absl::StatusOr<std::vector<Lease>> OpenOrOf(const std::vector<std::string>& run_ids);
  // Returns the newest lease that the run used; absent when it used none.
  absl::StatusOr<std::optional<Lease>> OfRun(absl::string_view run_id);

  absl::Status Exclude(absl::string_view place, absl::Duration how_long, absl::string_view reason);
  // Returns the excluded places that have not expired.
  absl::StatusOr<std::vector<ExcludedPlace>> Excluded();

  // Forgets all excluded places. Returns how many there were.
  absl::StatusOr<int> ClearExcluded();

  // Stores the waiting price rises of a market, from its newest list.
  absl::Status StorePriceRises(absl::string_view provider, const std::vector<PriceRise>& rises);
  // A stored price rise of a lease that bills.
  struct StoredPriceRise {
    Lease lease;
    PriceRise rise;
  };
  absl::StatusOr<std::vector<StoredPriceRise>> PriceRises();

  absl::Status StoreListing(const MarketListing& listing);
  absl::StatusOr<std::vector<MarketListing>> LastListings();

  // A function called before each change (done = false; its error makes the change fail) and after
  // the change is on disk. For tests. An empty one removes it.
  using WriteHook = std::function<absl::Status(absl::string_view change, bool done)>;
  void SetWriteHook(WriteHook hook) { write_hook_ = std::move(hook); }
  // Sets the hook that every ledger opened later begins with. Call it before there are threads.
  static void HookEveryLedger(WriteHook hook);

 private:
  Ledger(sqlite3* database, std::string state_dir, Clock& clock, LedgerHome home)
      : database_(database),
        state_dir_(std::move(state_dir)),
        clock_(clock),
        home_(std::move(home)) {}
  absl::Status Migrate();
  absl::Status Write(absl::string_view change, const std::function<absl::Status()>& body);
  absl::StatusOr<std::string> Meta(absl::string_view key);
  std::string HomeLine() const;
  std::string OwnerFile() const;
  void KeepOwnerFile(const std::string& owner) const;
  bool WasMovedFrom(absl::string_view home) const;
  absl::Status CheckStep(absl::string_view lease_id, absl::string_view doing);
  absl::StatusOr<std::vector<Lease>> Select(const std::string& where,
                                            const std::vector<std::string>& values);

  sqlite3* database_;
  const std::string state_dir_;
  Clock& clock_;
  const LedgerHome home_;
  WriteHook write_hook_;
};

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_LEDGER_LEDGER_H_
