#include "client/rent/lease_limits.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/quantity.h"

namespace gpuctl {
namespace {

constexpr double kSalvageShare = 1.0 / 3;
// A machine that lives shorter than this is not worth its start.
constexpr absl::Duration kWorthRenting = absl::Minutes(10);
constexpr absl::Duration kLeastSalvage = absl::Hours(2);
constexpr absl::Duration kMostSalvage = absl::Hours(24);
constexpr int kSalvageTimes = 4;

// Returns what a cost limit of gpuctl's own pays for beside the salvage.
absl::Duration UntilSalvage(const RunSpec& spec) {
  return kStartAllowance + spec.time_limit + spec.grace;
}

}  // namespace

absl::Duration SalvageOf(const RunSpec& spec) {
  return spec.salvage.value_or(
      std::clamp(kSalvageTimes * spec.time_limit, kLeastSalvage, kMostSalvage));
}

absl::Duration MostLifetime(const RunSpec& spec) { return UntilSalvage(spec) + SalvageOf(spec); }

bool EndsTooSoon(const RunSpec& spec, int64_t ends_ms, int64_t now_ms) {
  const absl::Duration needed = MostLifetime(spec) - kStartAllowance;
  return ends_ms > 0 && ends_ms - now_ms < absl::ToInt64Milliseconds(needed);
}

LeaseLimits AgreeLimits(const RunSpec& spec, double usd_per_hour, double spent_usd) {
  LeaseLimits limits;
  limits.time_s = absl::ToInt64Seconds(spec.time_limit);
  limits.idle_s = absl::ToInt64Seconds(spec.idle_limit);
  limits.contact_s = absl::ToInt64Seconds(spec.contact_limit);
  absl::Duration salvage = SalvageOf(spec);
  if (spec.cost_limit_usd.has_value()) {
    limits.cost_usd = spent_usd + *spec.cost_limit_usd;
    if (usd_per_hour > 0) {
      const absl::Duration paid = absl::Hours(*spec.cost_limit_usd * kSalvageShare / usd_per_hour);
      salvage = std::min(salvage, paid);
    }
  } else {
    limits.cost_usd = spent_usd + usd_per_hour * absl::ToDoubleHours(UntilSalvage(spec) + salvage);
  }
  limits.salvage_s = absl::ToInt64Seconds(salvage);
  return limits;
}

LeaseLimits WithSalvageOfOthers(LeaseLimits needs, const LeaseLimits& had, double usd_per_hour,
                                double spent_usd) {
  const int64_t more_s = had.salvage_s - needs.salvage_s;
  if (more_s <= 0) return needs;
  if (usd_per_hour <= 0) {
    needs.salvage_s = had.salvage_s;
    return needs;
  }
  const double left_usd = std::max(0.0, had.cost_usd - spent_usd);
  const double paid_usd = std::min(usd_per_hour * static_cast<double>(more_s) / 3600, left_usd);
  needs.cost_usd += paid_usd;
  needs.salvage_s += static_cast<int64_t>(paid_usd / usd_per_hour * 3600);
  return needs;
}

RunSpec SpecOfOne(const RunSpec& spec, int machines) {
  RunSpec one = spec;
  one.nodes = 1;
  if (one.cost_limit_usd.has_value()) *one.cost_limit_usd /= machines;
  return one;
}

absl::StatusOr<LeaseLimits> LimitsWithin(const RunSpec& spec, double usd_per_hour,
                                         double agreed_usd) {
  LeaseLimits limits = AgreeLimits(spec, usd_per_hour);
  const auto too_little = [&](absl::string_view cost_text, double needed_usd,
                              absl::string_view what) {
    return absl::ResourceExhaustedError(
        absl::StrCat(cost_text, " do not pay for ", what, " at ", FormatUsd(usd_per_hour), "/h; ",
                     FormatUsd(std::ceil(needed_usd * 100) / 100), " would do"));
  };
  if (spec.cost_limit_usd.has_value()) {
    // A long grace is paid for, too; else the job would be stopped when it begins.
    const absl::Duration least =
        kWorthRenting + std::max(absl::ZeroDuration(), spec.grace - absl::Minutes(1));
    const double least_usd = usd_per_hour * absl::ToDoubleHours(least);
    if (*spec.cost_limit_usd >= least_usd) return limits;
    return too_little(FormatUsd(*spec.cost_limit_usd), least_usd, HumanDuration(least));
  }
  if (limits.cost_usd <= agreed_usd || usd_per_hour <= 0) return limits;
  const absl::Duration salvage = absl::Hours(agreed_usd / usd_per_hour) - UntilSalvage(spec);
  if (salvage < kWorthRenting) {
    return too_little(absl::StrCat("the agreed ", FormatUsd(agreed_usd)),
                      usd_per_hour * absl::ToDoubleHours(UntilSalvage(spec) + kWorthRenting),
                      "the start, the time, the grace and the salvage");
  }
  limits.cost_usd = agreed_usd;
  limits.salvage_s = absl::ToInt64Seconds(salvage);
  return limits;
}

absl::StatusOr<double> CostLeftOver(const Lease& lease, int64_t now_ms) {
  if (lease.open()) {
    return absl::FailedPreconditionError(
        absl::StrCat(lease.provider, "/", lease.instance_id, " may still bill"));
  }
  const double spent_usd = SpentOn(lease, now_ms).high_usd;
  const double left_usd = lease.limits.cost_usd - spent_usd;
  if (left_usd <= 0 || left_usd < lease.HighestUsdPerHour() * absl::ToDoubleHours(kWorthRenting)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(FormatUsd(std::max(left_usd, 0.0)), " of its ",
                     FormatUsd(lease.limits.cost_usd), " are left, which does not pay for ",
                     HumanDuration(kWorthRenting), " of a machine like it"));
  }
  return left_usd;
}

absl::StatusOr<absl::Duration> TimeLeftOver(absl::Duration time_limit, absl::Duration used) {
  const absl::Duration left = time_limit - used;
  if (left >= absl::Minutes(1)) return left;
  return absl::ResourceExhaustedError(
      absl::StrCat(HumanDuration(std::max(left, absl::ZeroDuration())), " of its ",
                   HumanDuration(time_limit), " of running time are left"));
}

int GpusOfUse(const RunSpec& spec) {
  return spec.gpus.has_value() ? std::max(1, *spec.gpus) : LeaseUse::kWhole;
}

absl::Duration TimeUsed(const Lifecycle& lifecycle, int64_t accepted_ms, int64_t until_ms) {
  using Type = LifecycleEvent::Type;
  int64_t used_ms = 0, started_ms = lifecycle.events.empty() ? accepted_ms : 0;
  for (const LifecycleEvent& event : lifecycle.events) {
    if (event.type == Type::kStarted) {
      started_ms = event.time_ms;
    } else if ((event.type == Type::kExited || event.type == Type::kLost) && started_ms > 0) {
      used_ms += std::max(int64_t{0}, event.time_ms - started_ms);
      started_ms = 0;
    }
  }
  if (started_ms > 0) used_ms += std::max(int64_t{0}, until_ms - started_ms);
  return absl::Milliseconds(used_ms);
}

CostParts PartsOfCost(const LeaseLimits& limits, double usd_per_hour, absl::Duration grace) {
  const auto usd = [usd_per_hour](absl::Duration time) {
    return usd_per_hour * absl::ToDoubleHours(time);
  };
  CostParts parts;
  parts.salvage_usd = std::min(usd(absl::Seconds(limits.salvage_s)), limits.cost_usd);
  parts.idle_usd = std::min(usd(absl::Seconds(limits.idle_s)), parts.salvage_usd);
  parts.start_usd = std::min(usd(kStartAllowance), limits.cost_usd - parts.salvage_usd);
  const double left_usd = limits.cost_usd - parts.salvage_usd - parts.start_usd;
  const double needs_usd = usd(absl::Seconds(limits.time_s) + grace);
  parts.run_usd = needs_usd > left_usd - 0.005 ? left_usd : needs_usd;  // less is rounding
  parts.spare_usd = left_usd - parts.run_usd;
  return parts;
}

std::string DescribeCostParts(const LeaseLimits& limits, double usd_per_hour,
                              absl::Duration grace) {
  const CostParts parts = PartsOfCost(limits, usd_per_hour, grace);
  return absl::StrCat(FormatUsd(parts.start_usd), " to start (up to ",
                      HumanDuration(kStartAllowance), "), ", FormatUsd(parts.run_usd), " to run, ",
                      FormatUsd(parts.salvage_usd), " while results wait for you (",
                      HumanDuration(absl::Seconds(limits.idle_s)),
                      " idle once they are home: ", FormatUsd(parts.idle_usd), ")",
                      parts.spare_usd > 0 ? ", " + FormatUsd(parts.spare_usd) + " to spare" : "");
}

std::vector<std::string> DescribeLimits(const RunSpec& spec, const LeaseLimits& limits,
                                        double usd_per_hour) {
  const bool own_cost = !spec.cost_limit_usd.has_value();
  std::string running = absl::StrCat("running   ", HumanDuration(absl::Seconds(limits.time_s)),
                                     ", then ", HumanDuration(spec.grace), " to save");
  if (!own_cost && usd_per_hour > 0) {
    const absl::Duration pays =
        absl::Hours(limits.cost_usd / usd_per_hour) - spec.grace - absl::Seconds(limits.salvage_s);
    if (pays < spec.time_limit) {
      absl::StrAppend(&running, "; the cost ends the job after ",
                      HumanDuration(std::max(pays, absl::ZeroDuration())));
    }
  }
  std::string results =
      absl::StrCat("results   the machine ends ", HumanDuration(absl::Seconds(limits.idle_s)),
                   " after they are home, else ", HumanDuration(absl::Seconds(limits.salvage_s)),
                   " after the job");
  const absl::Duration salvage = SalvageOf(spec);
  if (!own_cost && limits.salvage_s < absl::ToInt64Seconds(salvage)) {
    absl::StrAppend(&results, " (a third of the cost pays for that, not for ",
                    HumanDuration(salvage), ")");
  }
  std::string cost =
      absl::StrCat("cost      ", FormatUsd(limits.cost_usd),
                   " at most: ", DescribeCostParts(limits, usd_per_hour, spec.grace));
  return {std::move(running), std::move(results), std::move(cost)};
}

}  // namespace gpuctl
