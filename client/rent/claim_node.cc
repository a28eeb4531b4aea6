#include "client/rent/claim_node.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/keys/market_access.h"
#include "client/node/tell_node.h"
#include "client/rent/market_expiry.h"
#include "common/base/status_macros.h"
#include "common/release/release_route.h"
#include "gpuctl/v1/agent.pb.h"
#include "provisioning/ledger/lease.h"

namespace gpuctl {

absl::Status ClaimNode(CommandContext& context, Ledger& ledger, NodeCalls& calls,
                       const Lease& lease, bool self_release, const RunSpec& spec,
                       const std::string& node_id, const gpuctl::v1::NodeLimits* waited_under) {
  NodeLimitFacts facts;
  ASSIGN_OR_RETURN(facts.release_base_url, MarketUrl(lease.provider));
  facts.self_release = self_release;
  facts.spent_usd = SpentOn(lease, context.NowMs()).high_usd;
  facts.grace = spec.grace;
  facts.checkpoints_only = spec.artifacts.empty() && spec.checkpoints.empty() &&
                           (waited_under == nullptr || waited_under->checkpoints_only());
  ASSIGN_OR_RETURN(const gpuctl::v1::NodeLimitsState state,
                   SendNodeLimits(calls, MakeNodeLimits(lease, facts, context.NowMs())));
  if (!state.can_release() && ReleaseRouteOf(lease.provider).way == EndsItself::kByExit) {
    // Its start command waits for a claim that it does not see, and would end the job with it.
    return absl::AbortedError(
        absl::StrCat(lease.provider, "/", lease.instance_id,
                     " would end before its time: ", state.cannot_release_why()));
  }
  if (!state.can_release()) {
    const std::string end = DescribeMarketEnd(lease, context.NowMs());
    context.Warn(
        absl::StrCat(end.empty() ? "warning: " : "", lease.provider, "/", lease.instance_id,
                     " cannot end its own bill: ", state.cannot_release_why(), "; ",
                     end.empty() ? "" : absl::StrCat(end, ", and "), "gpuctl keep --install ",
                     end.empty() ? "keeps watch" : "ends it sooner", " from this machine"));
  }
  return ledger.Claimed(lease.lease_id, node_id);
}

absl::Status ClaimFurtherNode(CommandContext& context, NodeCalls& calls, const Lease& lease,
                              const RunSpec& spec) {
  gpuctl::v1::NodeLimits limits;
  limits.set_revision(context.NowMs());
  limits.set_lease_id(lease.lease_id);
  limits.set_provider(lease.provider);
  limits.set_instance_id(lease.instance_id);
  limits.set_grace_ms(absl::ToInt64Milliseconds(spec.grace));
  return SendNodeLimits(calls, limits).status();
}

}  // namespace gpuctl
