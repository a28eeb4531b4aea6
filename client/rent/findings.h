// What a reconciliation found, as people and scripts read it.
#ifndef GPUCTL_CLIENT_RENT_FINDINGS_H_
#define GPUCTL_CLIENT_RENT_FINDINGS_H_

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "client/runs/context.h"
#include "provisioning/rental/reconcile.h"

namespace gpuctl {

// Writes a reconciliation's remarks to stderr: markets that are unknown, prices that changed, what
// ended.
void TellFindings(CommandContext& context, RunStore* store, const Reconciliation& found);
// Returns what a verb exits with for it: 117 with `leaks`, else the worst of the unknown markets,
// else 0.
int ExitCodeOfFindings(const Reconciliation& found, bool leaks);

// Returns "unknown" of the verbs' JSON: [{provider, cause, leases}].
nlohmann::ordered_json UnknownToJson(const std::vector<UnknownMarket>& unknown);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RENT_FINDINGS_H_
