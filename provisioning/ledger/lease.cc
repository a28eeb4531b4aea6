#include "provisioning/ledger/lease.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

constexpr std::array<absl::string_view, 5> kStateNames = {"intent", "rented", "releasing",
                                                          "released", "not_created"};
constexpr std::array<absl::string_view, 4> kEndingWords = {"", "preempted", "gone",
                                                           "ended outside gpuctl"};
constexpr double kMillisPerHour = 3'600'000.0;

enum class Bound { kLow, kHigh };

double Pick(double a, double b, Bound bound) {
  return bound == Bound::kLow ? std::min(a, b) : std::max(a, b);
}

// Returns the USD for [from, to) at the rates of `lease`. `bound` selects the lower or the higher
// rate for the time in which a change may have been in force.
double Integrate(const Lease& lease, int64_t from, int64_t to, Bound bound) {
  if (to <= from) return 0;
  double usd = 0, rate = lease.rates.empty() ? lease.price_usd_per_hour : 0;
  int64_t at = from;
  const auto add = [&](int64_t until, double usd_per_hour) {
    const int64_t end = std::min(until, to);
    if (end <= at) return;
    usd += usd_per_hour * static_cast<double>(end - at) / kMillisPerHour;
    at = end;
  };
  for (size_t i = 0; i < lease.rates.size(); ++i) {
    const RateChange& change = lease.rates[i];
    if (i > 0) {
      add(change.after_ms, rate);
      add(change.noticed_ms, Pick(rate, change.usd_per_hour, bound));
    }
    rate = change.usd_per_hour;
  }
  add(to, rate);
  return usd;
}

struct Bill {
  int64_t from = 0;
  int64_t to = 0;
};

// Returns the shortest or the longest possible billed time.
Bill BillOf(const Lease& lease, int64_t now_ms, Bound bound) {
  Bill bill;
  const bool low = bound == Bound::kLow;
  if (lease.state == LeaseState::kNotCreated) return bill;
  bill.from = lease.intended_ms;
  // The provider's time counts when it is possible.
  const bool told = lease.created_ms >= lease.intended_ms && lease.created_ms <= lease.rented_ms;
  if (told) {
    bill.from = lease.created_ms;
  } else if (low) {
    bill.from = lease.rented_ms;
  }
  bill.to = now_ms;
  if (lease.state == LeaseState::kReleased) {
    bill.to = low ? lease.ended_after_ms : lease.ended_ms;
  } else if (low && lease.state == LeaseState::kIntent) {
    bill.to = bill.from;
  } else if (low && lease.state == LeaseState::kReleasing) {
    bill.to = BilledUntil(lease, lease.seen_ms);
  }
  return bill;
}

double SpentIn(const Lease& lease, int64_t now_ms, Bound bound) {
  Bill bill = BillOf(lease, now_ms, bound);
  const bool high = bound == Bound::kHigh;
  int64_t length = bill.to - bill.from;
  // This laptop's clock may have gone back since; what was rented costs a unit at least.
  if (high && lease.rented_ms > 0 && lease.state != LeaseState::kNotCreated) {
    length = std::max<int64_t>(1, length);
  }
  if (length <= 0) return 0;
  const int64_t quantum = std::max<int64_t>(1, lease.quantum_s) * 1000;
  length = (high ? length + quantum - 1 : length) / quantum * quantum;
  return Integrate(lease, bill.from, bill.from + length, bound);
}

}  // namespace

absl::string_view LeaseStateName(LeaseState state) {
  return kStateNames[static_cast<size_t>(state)];
}

absl::StatusOr<LeaseState> ParseLeaseState(absl::string_view name) {
  const auto found = std::find(kStateNames.begin(), kStateNames.end(), name);
  if (found == kStateNames.end()) {
    return absl::DataLossError(absl::StrCat("unknown state of a lease: ", name));
  }
  return static_cast<LeaseState>(found - kStateNames.begin());
}

absl::string_view HowEnded(LeaseEnding ending) { return kEndingWords[static_cast<size_t>(ending)]; }

LeaseEnding EndingOf(absl::string_view how_ended) {
  const auto found = std::find(kEndingWords.begin(), kEndingWords.end(), how_ended);
  return found == kEndingWords.end() ? LeaseEnding::kOther
                                     : static_cast<LeaseEnding>(found - kEndingWords.begin());
}

double Lease::HighestUsdPerHour() const {
  double highest = rates.empty() ? price_usd_per_hour : 0;
  for (const RateChange& rate : rates) highest = std::max(highest, rate.usd_per_hour);
  return highest;
}

int64_t BilledUntil(const Lease& lease, int64_t shown_ms) {
  if (lease.releasing_ms == 0 || shown_ms < lease.releasing_ms) {
    return std::max(shown_ms, lease.releasing_ms);
  }
  return std::max(lease.releasing_ms, shown_ms - kListLagMs);
}

namespace {

// Returns what the market has charged for traffic that the node did not count, in USD.
double UncountedUsd(const Lease& lease) {
  double counted = 0;
  for (const LeaseTraffic& traffic : lease.traffic) counted += traffic.usd;
  return std::max(0.0, lease.traffic_charged_usd - counted);
}

}  // namespace

LeaseTraffic KnownTraffic(const Lease& lease) {
  LeaseTraffic all;
  for (const LeaseTraffic& traffic : lease.traffic) {
    all.noted_ms = std::max(all.noted_ms, traffic.noted_ms);
    all.sent_bytes += traffic.sent_bytes;
    all.received_bytes += traffic.received_bytes;
    all.usd += traffic.usd;
  }
  all.usd += UncountedUsd(lease);
  return all;
}

Spend SpentOn(const Lease& lease, int64_t now_ms) {
  const double low = SpentIn(lease, now_ms, Bound::kLow);
  const double traffic_usd = KnownTraffic(lease).usd;
  return {low + traffic_usd, std::max(low, SpentIn(lease, now_ms, Bound::kHigh)) + traffic_usd};
}

Spend SpentByRun(const Lease& lease, absl::string_view run_id, int64_t now_ms) {
  const auto use = std::find_if(lease.uses.begin(), lease.uses.end(),
                                [&](const LeaseUse& u) { return u.run_id == run_id; });
  if (use == lease.uses.end()) return {};
  if (lease.uses.size() == 1) return SpentOn(lease, now_ms);
  const auto next = std::next(use);
  const auto part = [&](Bound bound) {
    Bill bill = BillOf(lease, now_ms, bound);
    if (use != lease.uses.begin()) bill.from = std::max(bill.from, use->from_ms);
    if (next != lease.uses.end()) bill.to = std::min(bill.to, next->from_ms);
    return Integrate(lease, bill.from, bill.to, bound);
  };
  const double low = part(Bound::kLow);
  double traffic_usd = use == lease.uses.begin() ? UncountedUsd(lease) : 0;
  for (const LeaseTraffic& traffic : lease.traffic) {
    if (traffic.run_id == run_id) traffic_usd += traffic.usd;
  }
  return {low + traffic_usd, std::max(low, part(Bound::kHigh)) + traffic_usd};
}

Spend SpentBetween(const Lease& lease, int64_t from_ms, int64_t to_ms, int64_t now_ms) {
  const Bill longest = BillOf(lease, now_ms, Bound::kHigh);
  if (from_ms <= longest.from && to_ms >= longest.to) return SpentOn(lease, now_ms);
  const auto part = [&](Bound bound) {
    const Bill bill = BillOf(lease, now_ms, bound);
    return Integrate(lease, std::max(bill.from, from_ms), std::min(bill.to, to_ms), bound);
  };
  const double low = part(Bound::kLow);
  const bool began = lease.rented_ms >= from_ms && lease.rented_ms < to_ms;
  double traffic_usd = began ? UncountedUsd(lease) : 0;
  for (const LeaseTraffic& traffic : lease.traffic) {
    if (traffic.noted_ms >= from_ms && traffic.noted_ms < to_ms) traffic_usd += traffic.usd;
  }
  return {low + traffic_usd, std::max(low, part(Bound::kHigh)) + traffic_usd};
}

int64_t BilledMsBetween(const Lease& lease, int64_t from_ms, int64_t to_ms, int64_t now_ms) {
  const Bill bill = BillOf(lease, now_ms, Bound::kHigh);
  return std::max<int64_t>(0, std::min(bill.to, to_ms) - std::max(bill.from, from_ms));
}

}  // namespace gpuctl
