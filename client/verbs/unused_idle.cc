#include "client/verbs/unused_idle.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/bill/lease_view.h"
#include "client/market/instance_target.h"
#include "client/market/machine_users.h"
#include "client/rent/reuse_node.h"
#include "client/terminal/console.h"
#include "common/base/status_macros.h"
#include "provisioning/ledger/ledger.h"

namespace gpuctl {

absl::Status AddUnusedIdle(CommandContext& context, Holdings& holdings, RunStore& store, bool tell,
                           LaunchPlan& plan) {
  if (!plan.rents || plan.rental.idle.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.FindLedger());
  if (ledger == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<Lease> open, ledger->List(/*open_only=*/true));
  for (const Lease& lease : open) {
    if (lease.state != LeaseState::kRented || lease.claimed_ms == 0) continue;
    const std::string why =
        WhyUnfit(plan.spec, lease, plan.rental.own_limit_usd_per_hour.value_or(0));
    if (why.empty()) continue;
    ASSIGN_OR_RETURN(const int64_t idle_since_ms, IdleSinceMs(store, lease));
    if (idle_since_ms == 0) continue;
    plan.rental.unused_idle.push_back(
        absl::StrCat(RentedNodeName(lease.provider, lease.instance_id), " (",
                     FormatGpus(lease.gpu_name, lease.gpu_count),
                     ") is idle and bills, and is not used: ", why));
  }
  for (const std::string& line : plan.rental.unused_idle) {
    if (tell) context.Say(line);
  }
  return absl::OkStatus();
}

}  // namespace gpuctl
