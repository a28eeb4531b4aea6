#include "client/due/node_terms.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/market/instance_target.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/node/tell_node.h"
#include "common/base/at_once.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

// The number of nodes that are asked at the same time.
constexpr size_t kTermsAtOnce = 8;
constexpr double kSamePrice = 1e-6;

bool SamePrice(double a, double b) { return std::abs(a - b) <= kSamePrice * std::max(a, b); }

// Returns for how long results are kept, in seconds, for the same money as before: the node
// reserves it, so at a dearer price the same time could take all that is left, and end the job at
// once.
int64_t SalvageAtNewPrice(const gpuctl::v1::NodeLimits& had, const gpuctl::v1::NodeLimits& now) {
  if (had.rate_usd_per_hour() <= 0 || now.rate_usd_per_hour() <= 0) return now.salvage_s();
  const double same_money =
      static_cast<double>(had.salvage_s()) * had.rate_usd_per_hour() / now.rate_usd_per_hour();
  return std::min(now.salvage_s(), static_cast<int64_t>(same_money));
}

absl::Status Settle(CommandContext& context, Ledger& ledger, const std::string& lease_id,
                    const absl::StatusOr<NodeVerdict>& verdict) {
  RETURN_IF_ERROR(verdict.status());
  if (verdict->sent_bytes.has_value() && verdict->received_bytes.has_value()) {
    RETURN_IF_ERROR(ledger.NoteTraffic(lease_id, *verdict->sent_bytes, *verdict->received_bytes));
  }
  ASSIGN_OR_RETURN(const Lease lease, ledger.Get(lease_id));
  if (!lease.open() || !KnowsOtherPrices(*verdict, lease)) return absl::OkStatus();
  return SendTerms(context, lease);
}

}  // namespace

absl::Status SendTerms(CommandContext& context, const Lease& lease) {
  ASSIGN_OR_RETURN(const NodeTarget target, TargetOfInstance(context, lease, lease.address));
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, LinksToNode(context, lease));
  ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context, *links, target));
  ASSIGN_OR_RETURN(const gpuctl::v1::HelloReply node, calls.Hello());
  const gpuctl::v1::NodeLimits& had = node.limits().limits();
  if (had.lease_id() != lease.lease_id) {
    return absl::FailedPreconditionError("its agent serves another lease");
  }
  NodeLimitFacts facts;
  facts.release_base_url = had.release_base_url();
  facts.self_release = had.self_release();
  facts.spent_usd = SpentOn(lease, context.NowMs()).high_usd;
  facts.grace = absl::Milliseconds(had.grace_ms());
  facts.checkpoints_only = had.checkpoints_only();
  const int64_t revision = std::max(context.NowMs(), had.revision() + 1);
  gpuctl::v1::NodeLimits limits = MakeNodeLimits(lease, facts, revision);
  limits.set_salvage_s(std::max(int64_t{1}, SalvageAtNewPrice(had, limits)));
  return SendNodeLimits(calls, limits).status();
}

bool HasTermsToSettle(const Lease& lease) {
  return lease.state == LeaseState::kRented && lease.claimed_ms > 0 &&
         (lease.pays_for_traffic() || lease.rates.size() > 1);
}

bool KnowsOtherPrices(const NodeVerdict& verdict, const Lease& lease) {
  return verdict.usd_per_hour.has_value() &&
         (!SamePrice(*verdict.usd_per_hour, lease.usd_per_hour()) ||
          !SamePrice(verdict.upload_usd_per_gb, lease.upload_usd_per_gb) ||
          !SamePrice(verdict.download_usd_per_gb, lease.download_usd_per_gb));
}

void SettleTerms(CommandContext& context, Ledger& ledger, const std::vector<Lease>& leases,
                 const std::function<void(const Lease&, const absl::Status&)>& tell) {
  struct Asked {
    const Lease* lease;
    absl::StatusOr<std::unique_ptr<LinkFactory>> links;
    absl::StatusOr<NodeVerdict> verdict = absl::UnknownError("it was not asked");
  };
  std::vector<Asked> asked;
  for (const Lease& lease : leases) {
    if (HasTermsToSettle(lease)) asked.push_back({&lease, LinksToNode(context, lease)});
  }
  ForEachAtOnce(asked.size(), kTermsAtOnce, [&asked](size_t i) {
    Asked& one = asked[i];
    one.verdict = one.links.ok() ? AskLimits(**one.links, one.lease->lease_id) : one.links.status();
  });
  for (const Asked& one : asked) {
    const absl::Status settled = Settle(context, ledger, one.lease->lease_id, one.verdict);
    if (!settled.ok() && tell) tell(*one.lease, settled);
  }
}

void SettleTermsOf(CommandContext& context, Holdings& holdings, absl::string_view run_id) {
  const absl::StatusOr<std::optional<Lease>> lease = holdings.LeaseOf(run_id);
  if (!lease.ok() || !lease->has_value()) return;
  const absl::StatusOr<Ledger*> ledger = holdings.OpenLedger();
  if (ledger.ok()) SettleTerms(context, **ledger, {**lease});
}

}  // namespace gpuctl
