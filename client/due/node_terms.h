// Keeps the ledger and the nodes of rented machines in step: their traffic comes into the ledger,
// and the market's present prices go into their limits.
#ifndef GPUCTL_CLIENT_DUE_NODE_TERMS_H_
#define GPUCTL_CLIENT_DUE_NODE_TERMS_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/due/due_machines.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"
#include "provisioning/ledger/lease.h"
#include "provisioning/ledger/ledger.h"

namespace gpuctl {

// True when the node of `lease` has something to tell or to hear: its traffic is paid for, or its
// price has changed since it was rented.
bool HasTermsToSettle(const Lease& lease);

// True when the limits of the node count with other prices than those of `lease`.
bool KnowsOtherPrices(const NodeVerdict& verdict, const Lease& lease);

// Sends the node of `lease` its limits and prices, with what it has cost until now.
absl::Status SendTerms(CommandContext& context, const Lease& lease);

// Asks the nodes of these leases, several at the same time and each for at most 20 s; skips those
// that have nothing to settle. Notes their traffic, and sends its present prices to a node that
// counts with others. A node that does not answer keeps what it has; only `tell` hears why.
void SettleTerms(CommandContext& context, Ledger& ledger, const std::vector<Lease>& leases,
                 const std::function<void(const Lease&, const absl::Status&)>& tell = {});

// Does so for the machine that the run used last, if it used one.
void SettleTermsOf(CommandContext& context, Holdings& holdings, absl::string_view run_id);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_DUE_NODE_TERMS_H_
