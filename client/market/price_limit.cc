#include "client/market/price_limit.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/market/offer_plan.h"

namespace gpuctl {
namespace {

// Offers change between the plan and the rent, so one that costs a little more is taken, too.
constexpr double kOwnLimitTimes = 1.25;

// Prices are doubles: a whole number of cents must not become one cent more.
double UpToCents(double usd) { return std::ceil(usd * 100 - 1e-6) / 100; }

}  // namespace

double OwnPriceLimit(double shown_usd_per_hour) {
  return UpToCents(shown_usd_per_hour * kOwnLimitTimes);
}

std::optional<Offer> LeaveOutDearer(double usd_per_hour, std::vector<Offer>& offers) {
  const auto dearer = std::stable_partition(
      offers.begin(), offers.end(),
      [usd_per_hour](const Offer& offer) { return offer.price_usd_per_hour <= usd_per_hour; });
  if (dearer == offers.end()) return std::nullopt;
  std::optional<Offer> next = *std::min_element(
      dearer, offers.end(),
      [](const Offer& a, const Offer& b) { return a.price_usd_per_hour < b.price_usd_per_hour; });
  offers.erase(dearer, offers.end());
  return next;
}

absl::Status WithNextPrice(const absl::Status& status, double limit_usd_per_hour,
                           const Offer& next) {
  const std::string message = absl::StrCat(
      status.message(), "; the next one is ", DescribeGpus(next), " at ", next.provider, " for ",
      FormatUsd(next.price_usd_per_hour), " per hour, and the limit is ",
      FormatUsd(limit_usd_per_hour), ", a quarter above the price of the plan");
  return WithExitCode(
      WithHint(WithCause(absl::Status(status.code(), message), kPriceLimit),
               absl::StrCat(MaxPriceFlag(next.price_usd_per_hour), " allows that one")),
      ExitCodeOf(status));
}

std::string MaxPriceFlag(double usd_per_hour) {
  return absl::StrFormat("--max-price %.2f", UpToCents(usd_per_hour));
}

}  // namespace gpuctl
