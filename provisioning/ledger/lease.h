// A lease: our record of a machine that we pay for, or may pay for, and its cost. Plain data.
#ifndef GPUCTL_PROVISIONING_LEDGER_LEASE_H_
#define GPUCTL_PROVISIONING_LEDGER_LEASE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// All times are Unix milliseconds by this laptop's wall clock unless said otherwise; 0: not yet, or
// not known.

enum class LeaseState {
  kIntent,      // not requested yet, or requested with an unknown outcome: it may bill
  kRented,      // it bills
  kReleasing,   // we decided to end it; it may still bill
  kReleased,    // the provider said that it is gone
  kNotCreated,  // it never existed
};
// Returns "intent", "rented", "releasing", "released" or "not_created".
absl::string_view LeaseStateName(LeaseState state);
absl::StatusOr<LeaseState> ParseLeaseState(absl::string_view name);

// The party that ended a lease, where code decides by it.
enum class LeaseEnding {
  kOther,      // we did, or it has not ended, or never existed; see how_ended
  kPreempted,  // the market took the machine away
  kGone,       // it was gone; it may have ended itself
  kOutside,    // somebody else ended it
};

// how_ended of a machine whose launch the user called off before its run began.
inline constexpr char kHowInterrupted[] = "interrupted";

// Returns the text for how_ended; "" for kOther, which has other texts.
absl::string_view HowEnded(LeaseEnding ending);
// Returns the ending of a how_ended text; kOther for all other texts.
LeaseEnding EndingOf(absl::string_view how_ended);

// The limits accepted with the price; 0: no such limit.
struct LeaseLimits {
  int64_t time_s = 0;
  int64_t idle_s = 0;
  int64_t salvage_s = 0;
  int64_t contact_s = 0;  // time without contact while no job runs: `lease` in the run file
  double cost_usd = 0;
  bool operator==(const LeaseLimits&) const = default;
};

// A price and its beginning, which was after `after_ms` and before `noticed_ms`.
struct RateChange {
  int64_t after_ms = 0;
  int64_t noticed_ms = 0;
  double usd_per_hour = 0;
};

// A run that used the machine, and the time and the part of its use.
struct LeaseUse {
  // Values of `gpus`.
  static constexpr int kUnknown = -1;  // an older gpuctl noted it; it ended when the next one began
  static constexpr int kWhole = 0;

  std::string run_id;
  std::string run_name;
  int64_t from_ms = 0;
  int gpus = kUnknown;   // how many GPUs it has for itself, at least 1; or one of the above
  int64_t until_ms = 0;  // when it ended, as far as known; 0: it has not
  // The machine's limits as they were agreed for this run; absent: an older gpuctl noted it. Later
  // runs may raise those of the machine.
  std::optional<LeaseLimits> limits = std::nullopt;
};

// Traffic of the machine that its node reported, while one run used it and up to `noted_ms`.
struct LeaseTraffic {
  int64_t noted_ms = 0;
  std::string run_id;
  int64_t sent_bytes = 0;
  int64_t received_bytes = 0;
  double usd = 0;
};

struct Lease {
  std::string lease_id;
  std::string label;     // its name at the provider (provisioning/market/label.h)
  std::string provider;  // its name
  InstanceId instance_id;
  LeaseState state = LeaseState::kIntent;
  // The offer.
  std::string gpu_name;
  int gpu_count = 0;
  std::string region;
  std::string place;
  double price_usd_per_hour = 0;  // as offered; `rates` has the paid prices
  bool spot = false;
  int64_t quantum_s = 1;  // the provider's billing unit
  std::string purpose;    // one line for people
  LeaseLimits limits;
  std::vector<RateChange> rates;  // oldest first, never empty
  std::vector<LeaseUse> uses;     // oldest first
  // Prices of traffic now, per 10^9 bytes; 0: it is free, or the provider does not say.
  double upload_usd_per_gb = 0;
  double download_usd_per_gb = 0;
  std::vector<LeaseTraffic> traffic;  // oldest first
  // What the market has charged for its traffic so far. Where that is more than the node's count
  // costs, the rest is traffic before the agent ran, such as the image's. 0: not told.
  double traffic_charged_usd = 0;
  // The node's counts of bytes when it was last asked.
  int64_t sent_count = 0;
  int64_t received_count = 0;

  int64_t intended_ms = 0;  // before the provider was asked
  int64_t rented_ms = 0;    // after it had answered, or a listing showed the instance
  int64_t created_ms = 0;   // in the provider's time
  // The time when the node itself began to enforce the limits. Until then the process that rented
  // it holds its lock.
  int64_t claimed_ms = 0;
  int64_t releasing_ms = 0;    // before the provider was first asked to end it
  int64_t seen_ms = 0;         // when it was last known to bill
  int64_t ended_after_ms = 0;  // the bill ended after this
  int64_t ended_ms = 0;        // and before this
  std::string how_ended;       // for people: "released", "of no use", HowEnded
  LeaseEnding ending = LeaseEnding::kOther;
  // For an open intent: the time of the first whole listing without it, and the number of such
  // listings.
  int64_t absent_since_ms = 0;
  int absent_listings = 0;
  // The time since when every look has shown it out of order (kFailed, kSilent); 0: it is in order.
  int64_t trouble_ms = 0;
  // When its host takes it back (Instance::ends_ms).
  int64_t ends_ms = 0;
  std::string host_key;   // the public part of the host key that it got; empty: it made its own
  std::string key_print;  // of the market's key that it was rented with; empty: not known
  std::string node_id;    // the agent that claimed it
  SshAddress address;     // last known host, port and user; empty host: none yet

  // True when it bills or may bill.
  bool open() const { return state != LeaseState::kReleased && state != LeaseState::kNotCreated; }
  // Returns the price now; 0: it is not known, or BillsNothing().
  double usd_per_hour() const {
    return rates.empty() ? price_usd_per_hour : rates.back().usd_per_hour;
  }
  // Returns its highest price so far: that of the machine while it ran, also when it is stopped
  // now.
  double HighestUsdPerHour() const;
  // True when the market showed that it is stopped and that nothing of it bills.
  bool BillsNothing() const { return rates.size() > 1 && rates.back().usd_per_hour == 0; }
  bool pays_for_traffic() const { return upload_usd_per_gb > 0 || download_usd_per_gb > 0; }
};

// How far a provider's lists and look-ups may be behind: for so long they may not show what was
// rented, and still show what has ended.
inline constexpr int64_t kListLagMs = 120'000;

// Returns a time until which an open `lease` billed for certain, where the provider last showed it
// at `shown_ms`. What it shows after it was asked to end the machine may be old.
int64_t BilledUntil(const Lease& lease, int64_t shown_ms);

// The bounds of a cost. The laptop does not know exactly when a provider begins and ends a bill.
struct Spend {
  double low_usd = 0;
  double high_usd = 0;
};

// Returns the cost of `lease` until `now_ms`, in USD. Low counts complete quanta, high also begun
// ones. An open intent costs between nothing and all of the time since it was written. Traffic
// counts as far as the node has reported it or the market has charged it.
Spend SpentOn(const Lease& lease, int64_t now_ms);

// The parts of a cost, one for each of the lease's uses. All `own` and `idle` together are the
// cost.
struct SpendParts {
  struct Part {
    Spend own;                       // while the run used the machine
    Spend idle;                      // while nobody did, after this run had used it last
    double own_ms = 0, idle_ms = 0;  // the time of the longest bill, divided in the same way
  };
  std::vector<Part> of_uses;
};

// Divides the cost that falls between two times (as in SpentBetween): runs that use the machine at
// the same time share it by their GPUs. The time before the first run belongs to that run. A run
// that was the only one has all. Traffic belongs to the run that the node reported it for; what the
// node did not count, to the first run.
SpendParts DivideSpend(const Lease& lease, int64_t from_ms, int64_t to_ms, int64_t now_ms);

// Returns the run's own part of the whole cost until `now_ms`. Zero for a run that never used it.
Spend SpentByRun(const Lease& lease, absl::string_view run_id, int64_t now_ms);

// Returns the part of the machine's price that the run pays now: its GPUs of those of all runs that
// use it; 0 when it does not.
double ShareNow(const Lease& lease, absl::string_view run_id);

// Returns the machine's limits as they were agreed for the run; those of the lease where nothing
// else is known.
const LeaseLimits& LimitsFor(const Lease& lease, absl::string_view run_id);

// Returns the indices of the uses that hold the machine now: those that have not ended; when all
// have, the one that ended last.
std::vector<size_t> HoldingUses(const Lease& lease);

// True when the market ended that machine, or when nobody knows who did.
bool WasTakenAway(const Lease& lease);

// Returns the traffic of the machine that is known, over all runs; its cost is the market's own
// number where that is larger.
LeaseTraffic KnownTraffic(const Lease& lease);

// Returns the part of that cost that falls between two times. The whole cost when nothing of the
// bill is outside; else without the rounding to the provider's unit. Traffic falls on the time when
// it was reported, and what the node did not count on the beginning of the rent.
Spend SpentBetween(const Lease& lease, int64_t from_ms, int64_t to_ms, int64_t now_ms);
// Returns the time of the longest possible bill, in ms, that falls between two times.
int64_t BilledMsBetween(const Lease& lease, int64_t from_ms, int64_t to_ms, int64_t now_ms);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_LEDGER_LEASE_H_
