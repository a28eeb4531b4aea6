// The price per hour up to which a machine is rented when the user names none. Pure.
#ifndef GPUCTL_CLIENT_MARKET_PRICE_LIMIT_H_
#define GPUCTL_CLIENT_MARKET_PRICE_LIMIT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// Returns the most that a machine may cost, in USD per hour, when the user was shown one for
// `shown_usd_per_hour` and named no limit: a quarter more, rounded up to a cent.
double OwnPriceLimit(double shown_usd_per_hour);

// Removes the offers above `usd_per_hour`, in USD per hour, and keeps the order of the others.
// Returns the cheapest of those that were removed; nothing when none was.
std::optional<Offer> LeaveOutDearer(double usd_per_hour, std::vector<Offer>& offers);

// Adds to the error of a rent under gpuctl's own limit what the next offer would cost, and the flag
// that allows it. Keeps the code, the exit code and the rest of the message.
absl::Status WithNextPrice(const absl::Status& status, double limit_usd_per_hour,
                           const Offer& next);

// Returns "--max-price 0.23", which allows the price: rounded up to a cent.
std::string MaxPriceFlag(double usd_per_hour);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_MARKET_PRICE_LIMIT_H_
