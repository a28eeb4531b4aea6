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

int64_t GrantedEnd(Provider& provider, const Instance& ready, absl::Time asked,
                   const std::function<void(absl::string_view)>& say) {
  if (ready.ends_ms > 0 || asked == absl::InfiniteFuture()) return ready.ends_ms;
  // It answered the create, which is all that it will say.
  if (!ready.tells_end) return absl::ToUnixMillis(asked);
  if (provider.traits().expiry.can_move && provider.MoveExpiry(ready.id, asked).ok()) {
    const absl::StatusOr<Instance> seen = provider.Describe(ready.id);
    if (seen.ok() && seen->ends_ms > 0) return seen->ends_ms;
  }
  say(absl::StrCat("warning: ", provider.name(), " was told to end ", ready.id, " at ",
                   FormatRfc3339(absl::ToUnixMillis(asked)),
                   " and shows no such time: only a gpuctl ends its bill; "
                   "gpuctl keep --install does it from this computer"));
  return 0;
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
  int64_t ends_ms = absl::ToUnixMillis(expiry);
  const absl::StatusOr<Instance> seen = provider->Describe(lease.instance_id);
  if (seen.ok() && seen->tells_end) ends_ms = seen->ends_ms;
  RETURN_IF_ERROR(ledger.SetEnds(lease.lease_id, ends_ms));
  if (!EndsTooSoon(spec, ends_ms, absl::ToUnixMillis(now))) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      lease.provider, "/", lease.instance_id, " still ends at ", FormatRfc3339(ends_ms),
      ", before the run has had its time: ", lease.provider, " did not move that"));
}

std::string DescribeMarketEnd(const Lease& lease, int64_t now_ms) {
  if (lease.ends_ms <= now_ms) return "";
  return absl::StrCat(lease.provider, " ends it in ",
                      HumanDuration(absl::Milliseconds(lease.ends_ms - now_ms)), " at the latest");
}

}  // namespace gpuctl
