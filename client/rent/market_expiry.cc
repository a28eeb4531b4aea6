#include "client/rent/market_expiry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/base/quantity.h"
#include "client/rent/lease_limits.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

// The node, and a client that is there, end a machine before its market does.
constexpr absl::Duration kAfterTheLimits = absl::Minutes(15);

}  // namespace

absl::Time ExpiryFor(const LeaseLimits& limits, double usd_per_hour, absl::Time since,
                     absl::Duration lifetime, absl::Time now) {
  absl::Time expiry = now + lifetime;
  if (limits.cost_usd > 0 && usd_per_hour > 0) {
    expiry = std::max(expiry, since + absl::Hours(limits.cost_usd / usd_per_hour));
  }
  return expiry + kAfterTheLimits;
}

absl::Status Prolong(Ledger& ledger, const Lease& lease, const RunSpec& spec, absl::Time now,
                     const std::function<absl::StatusOr<Provider*>()>& find_provider) {
  if (!EndsTooSoon(spec, lease.ends_ms, absl::ToUnixMillis(now))) return absl::OkStatus();
  ASSIGN_OR_RETURN(Provider* const provider, find_provider());
  if (!provider->traits().expiry.can_move) {
    return absl::UnavailableError(absl::StrCat(lease.provider, "/", lease.instance_id, " ends at ",
                                               FormatRfc3339(lease.ends_ms),
                                               ", before the run has had its time"));
  }
  const absl::Time expiry = ExpiryFor(
      lease.limits, lease.usd_per_hour(),
      absl::FromUnixMillis(std::max(lease.intended_ms, lease.rented_ms)), MostLifetime(spec), now);
  RETURN_IF_ERROR(provider->MoveExpiry(lease.instance_id, expiry));
  return ledger.SetEnds(lease.lease_id, absl::ToUnixMillis(expiry));
}

std::string DescribeMarketEnd(const Lease& lease, int64_t now_ms) {
  if (lease.ends_ms <= now_ms) return "";
  return absl::StrCat(lease.provider, " ends it in ",
                      HumanDuration(absl::Milliseconds(lease.ends_ms - now_ms)), " at the latest");
}

}  // namespace gpuctl
