// The text and JSON of what a reconciliation found.
#ifndef GPUCTL_CLIENT_DUE_FINDINGS_H_
#define GPUCTL_CLIENT_DUE_FINDINGS_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "client/runs/context.h"
#include "provisioning/rental/reconcile.h"

namespace gpuctl {

// Writes what a reconciliation found to stderr: markets that could not be asked, prices that
// changed, machines that ended.
void TellFindings(CommandContext& context, RunStore* store, const Reconciliation& found);
// Writes which machines bill that are ours by their names, and that the ledger does not know.
void TellLost(CommandContext& context, const Reconciliation& found);
// Returns "<id> at <provider>, $0.74/h: <why>".
std::string DescribeBill(absl::string_view provider, const Instance& instance,
                         absl::string_view why);
// Says what is known of a lease whose outcome is not known yet (Reconciliation::unsettled).
std::string DescribeUnsettled(const Lease& lease, int64_t now_ms);
// Returns whom a reconciliation asked, and who has no key here: "vast; runpod and lambda have no
// key here".
std::string DescribeAsked(const std::vector<ReconcileMarket>& markets);
// Returns the names of the markets that have neither a key nor an open lease, so that nobody asked
// them.
std::vector<std::string> MarketsWithoutKey(const std::vector<ReconcileMarket>& markets);
// Returns a verb's exit code: 117 with `leaks`, else that of the worst unknown market, else 0.
int ExitCodeOfFindings(const Reconciliation& found, bool leaks);

// Returns "unknown" of the verbs' JSON: [{provider, cause, leases}].
nlohmann::ordered_json UnknownToJson(const std::vector<UnknownMarket>& unknown);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_DUE_FINDINGS_H_
