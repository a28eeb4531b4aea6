// Rents a machine from a list of offers, checks that it works and gives it its limits. Launch does
// this between the accepted price and the start of the job.
#ifndef GPUCTL_CLIENT_RENT_RENT_NODE_H_
#define GPUCTL_CLIENT_RENT_RENT_NODE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "client/keys/market_access.h"
#include "client/rent/claim_node.h"
#include "client/runs/context.h"
#include "provisioning/ledger/ledger.h"

namespace gpuctl {

// A launch pays for so many machines of no use, or for those of so many offers; then it tries no
// other.
inline constexpr int kPaidFailures = 2;

// Rents the first of request.offers that works. Tries the next one when an offer is gone. Gives a
// machine back that does not come up in time or is not what was promised, and leaves its place out
// for a while. Says on stderr what it does and why. Errors: NOT_FOUND with exit code 121 when no
// offer is left; the market's own error, with its exit code and the cause kMarketRefuses, when no
// market took the request; CANCELLED by Ctrl-C or request.cancelled, saying what bills, if
// anything. With request.cancelled, logins that no machine uses stay at the markets.
absl::StatusOr<RentedNode> RentNode(CommandContext& context, Ledger& ledger,
                                    const std::vector<Market>& markets,
                                    const RentedNodeRequest& request);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RENT_RENT_NODE_H_
