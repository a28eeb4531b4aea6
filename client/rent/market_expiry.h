// The time at which a market itself ends a rented machine (Expiry in
// provisioning/market/provider.h). It comes after everything that the machine's own limits allow,
// so that it only ends what nothing else has ended.
#ifndef GPUCTL_CLIENT_RENT_MARKET_EXPIRY_H_
#define GPUCTL_CLIENT_RENT_MARKET_EXPIRY_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/spec/run_spec.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/market/provider.h"

namespace gpuctl {

// Returns when the market is to end a machine that bills since `since` at this price and has these
// limits, of a run that lives for `lifetime` at most from `now` on.
absl::Time ExpiryFor(const LeaseLimits& limits, double usd_per_hour, absl::Time since,
                     absl::Duration lifetime, absl::Time now);

// Returns the time at which the market will end a machine that is ready, in Unix milliseconds, as
// `ready` says; 0: never. `asked` is the end that its create set; infinite: none. A market that
// shows no end although one was set is told it once more, where it can move an end; when that does
// not help, `say` gets a warning.
int64_t GrantedEnd(Provider& provider, const Instance& ready, absl::Time asked,
                   const std::function<void(absl::string_view)>& say);

// Makes sure that the market does not end the machine of `lease`, which has its new limits already,
// before a run of `spec` that begins at `now` has had its time: moves the end where the market can,
// and records the end that the market shows afterwards. `find_provider` is called when the end has
// to be moved. UNAVAILABLE: it ends too soon, and cannot be moved, or was not moved whatever the
// market answered.
absl::Status Prolong(Ledger& ledger, const Lease& lease, const RunSpec& spec, absl::Time now,
                     const std::function<absl::StatusOr<Provider*>()>& find_provider);

// Returns "vast ends it in 3h 10m at the latest": the end of a machine that its market, or its
// host, sets whatever becomes of the machine and of us; "" when none is known, or it has passed.
std::string DescribeMarketEnd(const Lease& lease, int64_t now_ms);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RENT_MARKET_EXPIRY_H_
