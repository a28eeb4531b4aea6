#include "provisioning/ledger/lease.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

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

// Returns that time in whole billing units: low counts complete ones, high also begun ones.
Bill WholeBill(const Lease& lease, int64_t now_ms, Bound bound) {
  Bill bill = BillOf(lease, now_ms, bound);
  const bool high = bound == Bound::kHigh;
  int64_t length = bill.to - bill.from;
  // This laptop's clock may have gone back since; what was rented costs a unit at least.
  if (high && lease.rented_ms > 0 && lease.state != LeaseState::kNotCreated) {
    length = std::max<int64_t>(1, length);
  }
  const int64_t quantum = std::max<int64_t>(1, lease.quantum_s) * 1000;
  length = std::max<int64_t>(0, length);
  bill.to = bill.from + (high ? length + quantum - 1 : length) / quantum * quantum;
  return bill;
}

double SpentIn(const Lease& lease, int64_t now_ms, Bound bound) {
  const Bill bill = WholeBill(lease, now_ms, bound);
  return Integrate(lease, bill.from, bill.to, bound);
}

// Returns when a use ended; `never` when it has not.
int64_t EndOf(const Lease& lease, size_t index, int64_t never) {
  const LeaseUse& use = lease.uses[index];
  if (use.gpus != LeaseUse::kUnknown) return use.until_ms > 0 ? use.until_ms : never;
  return index + 1 < lease.uses.size() ? lease.uses[index + 1].from_ms : never;
}

// The time of a use within a bill, and its weight beside others.
struct Span {
  int64_t from = 0;
  int64_t to = 0;
  double weight = 1;
};

double WeightOf(const Lease& lease, const LeaseUse& use) {
  return std::max(1, use.gpus > 0 ? use.gpus : lease.gpu_count);
}

std::vector<Span> SpansOf(const Lease& lease, const Bill& bill) {
  std::vector<Span> spans;
  for (size_t i = 0; i < lease.uses.size(); ++i) {
    const LeaseUse& use = lease.uses[i];
    Span& span = spans.emplace_back();
    span.from = i == 0 ? bill.from : std::clamp(use.from_ms, bill.from, bill.to);
    span.to = std::clamp(EndOf(lease, i, bill.to), span.from, bill.to);
    // The only run pays for the machine, also after its end.
    if (lease.uses.size() == 1) span.to = bill.to;
    span.weight = WeightOf(lease, use);
  }
  return spans;
}

// Calls `own(use, from, to, share)` and `idle(use, from, to)` for all of the bill's time.
template <typename Own, typename Idle>
void WalkBill(const Lease& lease, const Bill& bill, const Own& own, const Idle& idle) {
  if (bill.to <= bill.from || lease.uses.empty()) return;
  const std::vector<Span> spans = SpansOf(lease, bill);
  std::vector<int64_t> times = {bill.from, bill.to};
  std::vector<size_t> coming(spans.size());  // the next one is the last
  for (size_t i = 0; i < spans.size(); ++i) {
    times.insert(times.end(), {spans[i].from, spans[i].to});
    coming[i] = i;
  }
  std::sort(times.begin(), times.end());
  std::sort(coming.begin(), coming.end(), [&spans](size_t a, size_t b) {
    return std::tie(spans[a].from, a) > std::tie(spans[b].from, b);
  });
  std::vector<size_t> active;
  size_t last = 0;  // of those that are over
  int64_t last_to = bill.from;
  for (size_t t = 0; t + 1 < times.size(); ++t) {
    const int64_t from = times[t], to = times[t + 1];
    if (to <= from) continue;
    for (; !coming.empty() && spans[coming.back()].from <= from; coming.pop_back()) {
      active.push_back(coming.back());
    }
    const auto over = [&](size_t i) {
      if (spans[i].to > from) return false;
      if (std::tie(spans[i].to, i) >= std::tie(last_to, last)) last = i, last_to = spans[i].to;
      return true;
    };
    active.erase(std::remove_if(active.begin(), active.end(), over), active.end());
    double weights = 0;
    for (const size_t i : active) weights += spans[i].weight;
    if (active.empty()) idle(last, from, to);
    for (const size_t i : active) own(i, from, to, spans[i].weight / weights);
  }
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

SpendParts DivideSpend(const Lease& lease, int64_t from_ms, int64_t to_ms, int64_t now_ms) {
  SpendParts parts;
  parts.of_uses.resize(lease.uses.size());
  if (lease.uses.empty()) return parts;
  const Bill longest = BillOf(lease, now_ms, Bound::kHigh);
  const bool whole = from_ms <= longest.from && to_ms >= longest.to;
  const auto divide = [&](Bound bound, double Spend::*usd) {
    Bill bill = whole ? WholeBill(lease, now_ms, bound) : BillOf(lease, now_ms, bound);
    if (!whole) bill.from = std::max(bill.from, from_ms), bill.to = std::min(bill.to, to_ms);
    WalkBill(
        lease, bill,
        [&](size_t use, int64_t from, int64_t to, double share) {
          parts.of_uses[use].own.*usd += share * Integrate(lease, from, to, bound);
        },
        [&](size_t use, int64_t from, int64_t to) {
          parts.of_uses[use].idle.*usd += Integrate(lease, from, to, bound);
        });
  };
  divide(Bound::kLow, &Spend::low_usd);
  divide(Bound::kHigh, &Spend::high_usd);
  // This laptop's clock may have gone back: then the certain time is the longer one, as in SpentOn.
  double low = 0, high = 0;
  for (const SpendParts::Part& part : parts.of_uses) {
    low += part.own.low_usd + part.idle.low_usd;
    high += part.own.high_usd + part.idle.high_usd;
  }
  for (SpendParts::Part& part : parts.of_uses) {
    if (low > high) part.own.high_usd = part.own.low_usd, part.idle.high_usd = part.idle.low_usd;
  }
  Bill time = longest;
  time.from = std::max(time.from, from_ms), time.to = std::min(time.to, to_ms);
  WalkBill(
      lease, time,
      [&](size_t use, int64_t from, int64_t to, double share) {
        parts.of_uses[use].own_ms += share * static_cast<double>(to - from);
      },
      [&](size_t use, int64_t from, int64_t to) {
        parts.of_uses[use].idle_ms += static_cast<double>(to - from);
      });
  const auto charge = [](Spend& spend, double usd) { spend.low_usd += usd, spend.high_usd += usd; };
  const bool began = whole || (lease.rented_ms >= from_ms && lease.rented_ms < to_ms);
  if (began) charge(parts.of_uses.front().own, UncountedUsd(lease));
  for (const LeaseTraffic& traffic : lease.traffic) {
    if (!whole && (traffic.noted_ms < from_ms || traffic.noted_ms >= to_ms)) continue;
    const auto use = std::find_if(lease.uses.begin(), lease.uses.end(),
                                  [&](const LeaseUse& u) { return u.run_id == traffic.run_id; });
    // What belongs to no known run belongs to the first one.
    const size_t index =
        use == lease.uses.end() ? 0 : static_cast<size_t>(use - lease.uses.begin());
    charge(parts.of_uses[index].own, traffic.usd);
  }
  return parts;
}

const LeaseLimits& LimitsFor(const Lease& lease, absl::string_view run_id) {
  for (const LeaseUse& use : lease.uses) {
    if (use.run_id == run_id && use.limits.has_value()) return *use.limits;
  }
  return lease.limits;
}

Spend SpentByRun(const Lease& lease, absl::string_view run_id, int64_t now_ms) {
  const auto use = std::find_if(lease.uses.begin(), lease.uses.end(),
                                [&](const LeaseUse& u) { return u.run_id == run_id; });
  if (use == lease.uses.end()) return {};
  constexpr int64_t kEver = std::numeric_limits<int64_t>::max();
  const SpendParts parts = DivideSpend(lease, 0, kEver, now_ms);
  return parts.of_uses[static_cast<size_t>(use - lease.uses.begin())].own;
}

double ShareNow(const Lease& lease, absl::string_view run_id) {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  double own = 0, all = 0;
  for (size_t i = 0; i < lease.uses.size(); ++i) {
    if (EndOf(lease, i, kNever) != kNever) continue;
    const double weight = WeightOf(lease, lease.uses[i]);
    all += weight;
    if (lease.uses[i].run_id == run_id) own = weight;
  }
  return all > 0 ? own / all : 0;
}

std::vector<size_t> HoldingUses(const Lease& lease) {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  std::vector<size_t> holding;
  int64_t latest = 0;
  for (size_t i = 0; i < lease.uses.size(); ++i) {
    const int64_t end = EndOf(lease, i, kNever);
    if (end < latest) continue;
    if (end > latest || end != kNever) holding.clear();
    latest = end;
    holding.push_back(i);
  }
  return holding;
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

bool WasTakenAway(const Lease& lease) {
  return lease.state == LeaseState::kReleased && lease.ending != LeaseEnding::kOther;
}

}  // namespace gpuctl
