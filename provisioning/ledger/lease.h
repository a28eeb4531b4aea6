// Our record that we are, or may be, paying for a machine, and what it has cost. Plain data.
#ifndef GPUCTL_PROVISIONING_LEDGER_LEASE_H_
#define GPUCTL_PROVISIONING_LEDGER_LEASE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// All times are Unix milliseconds by this laptop's wall clock unless said otherwise; 0: not yet, or
// not known.

enum class LeaseState {
  kIntent,      // about to be asked for, or asked for with an unknown outcome: it may bill
  kRented,      // it bills
  kReleasing,   // its end was decided; it may still bill
  kReleased,    // the provider said that it is gone
  kNotCreated,  // it never was
};
// "intent", "rented", "releasing", "released", "not_created".
absl::string_view LeaseStateName(LeaseState state);
absl::StatusOr<LeaseState> ParseLeaseState(absl::string_view name);

// Who ended a lease, as far as something is decided by it.
enum class LeaseEnding {
  kOther,      // we did, or it has not ended, or never was; how_ended says more
  kPreempted,  // the market took the machine away
  kGone,       // it was not there any more; it may have ended itself
  kOutside,    // somebody else ended it
};
// Returns the words for how_ended; "" for kOther, which has words of its own.
absl::string_view HowEnded(LeaseEnding ending);
// The way back; kOther for all other words.
LeaseEnding EndingOf(absl::string_view how_ended);

// The limits agreed on when the price was accepted; 0: no such limit.
struct LeaseLimits {
  int64_t time_s = 0;
  int64_t idle_s = 0;
  int64_t salvage_s = 0;
  int64_t contact_s = 0;  // time without contact while no job runs: `lease` in the run file
  double cost_usd = 0;
};

// A price, and when it came into force: after `after_ms` and before `noticed_ms`.
struct RateChange {
  int64_t after_ms = 0;
  int64_t noticed_ms = 0;
  double usd_per_hour = 0;
};

// A run that used the machine, from when on.
struct LeaseUse {
  std::string run_id;
  std::string run_name;
  int64_t from_ms = 0;
};

struct Lease {
  std::string lease_id;
  std::string label;     // what it is called at the provider (provisioning/market/label.h)
  std::string provider;  // its name
  InstanceId instance_id;
  LeaseState state = LeaseState::kIntent;
  // The offer.
  std::string gpu_name;
  int gpu_count = 0;
  std::string region;
  std::string place;
  double price_usd_per_hour = 0;  // as offered; `rates` has what is paid
  bool spot = false;
  int64_t quantum_s = 1;  // what the provider rounds to
  std::string purpose;    // one line for people
  LeaseLimits limits;
  std::vector<RateChange> rates;  // oldest first, never empty
  std::vector<LeaseUse> uses;     // oldest first

  int64_t intended_ms = 0;  // before the provider was asked
  int64_t rented_ms = 0;    // after it had answered, or a listing showed the instance
  int64_t created_ms = 0;   // by the provider's clock
  // When the node itself began to enforce the limits. Until then whoever rented it holds its lock.
  int64_t claimed_ms = 0;
  int64_t releasing_ms = 0;    // before the provider was first asked to end it
  int64_t seen_ms = 0;         // when it was last known to bill
  int64_t ended_after_ms = 0;  // the bill ended after this
  int64_t ended_ms = 0;        // and before this
  std::string how_ended;       // for people: "released", "of no use", HowEnded
  LeaseEnding ending = LeaseEnding::kOther;
  // An open intent: since when, and in how many whole listings, nothing has been there.
  int64_t absent_since_ms = 0;
  int absent_listings = 0;
  std::string node_id;  // the agent that claimed it
  SshAddress address;   // host, port and user as last known; empty host: none yet

  // True when it bills or may bill.
  bool open() const { return state != LeaseState::kReleased && state != LeaseState::kNotCreated; }
  double usd_per_hour() const {
    return rates.empty() ? price_usd_per_hour : rates.back().usd_per_hour;
  }
};

// The bounds of a cost: the laptop does not know to the millisecond when a provider begins and ends
// a bill.
struct Spend {
  double low_usd = 0;
  double high_usd = 0;
};

// Returns what `lease` has cost until `now_ms`. Low counts the quanta that have passed, high those
// that have begun. An open intent costs between nothing and all of the time since.
Spend SpentOn(const Lease& lease, int64_t now_ms);

// Returns the part of that cost that belongs to one run: from when it began to use the machine (the
// first run: from the beginning of the bill) until the next run did. Zero for a run that never used
// it.
Spend SpentByRun(const Lease& lease, absl::string_view run_id, int64_t now_ms);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_LEDGER_LEASE_H_
