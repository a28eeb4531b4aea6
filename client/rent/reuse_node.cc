#include "client/rent/reuse_node.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/base/node_target.h"
#include "client/base/quantity.h"
#include "client/bill/lease_view.h"
#include "client/market/instance_target.h"
#include "client/node/make_links.h"
#include "client/rent/lease_limits.h"
#include "client/rent/market_expiry.h"
#include "client/spec/job_spec.h"
#include "common/base/status_macros.h"
#include "gpuctl/v1/agent.pb.h"
#include "provisioning/ledger/lease.h"
#include "provisioning/market/gpu_models.h"
#include "provisioning/market/provider.h"
#include "provisioning/markets.h"
#include "provisioning/rental/account.h"
#include "provisioning/rental/rental.h"

namespace gpuctl {
namespace {

// True when the node has the GPUs that were asked for, or may. The ledger knows models; only the
// node knows how much memory they have. An agent that has just started may not know its GPUs yet;
// then the ledger's model is trusted when the GPUs were asked for by name.
bool MayHaveTheGpus(const RunSpec& spec, const Lease& lease, const gpuctl::v1::HelloReply& node) {
  if (CheckNodeSatisfies(spec, node, lease.instance_id).ok()) return true;
  const bool by_name = std::all_of(spec.gpu.begin(), spec.gpu.end(),
                                   [](const GpuRequirement& gpu) { return !gpu.name.empty(); });
  return by_name && node.gpus_size() < lease.gpu_count;
}

// True when an allocation runs. One that is over, or waits in the queue, answers from what was kept
// of it, and starts nothing.
bool TakesJobs(CommandContext& context, Ledger& ledger, Provider& provider, const Lease& lease,
               const LeaseLock& lock) {
  const absl::StatusOr<Instance> there =
      LookUp(ledger, provider, lease, context.clock, context.NowMs(), &lock);
  if (absl::IsNotFound(there.status())) {
    const std::string words = WordsOfGone(there.status());
    context.Say(absl::StrCat("left out: ", RentedNodeName(lease.provider, lease.instance_id),
                             ": it is over", words.empty() ? "" : ": ", words));
  }
  return there.ok() && there->state == Instance::State::kRunning && !there->suspended;
}

// Returns the market that has the machine's account, if it can be asked here; else null.
Provider* WhoCanEnd(Ledger& ledger, const std::vector<Market>& markets, const Lease& lease) {
  for (const Market& market : markets) {
    if (market.name == lease.provider && CheckAccount(ledger, *market.provider, lease).ok()) {
      return market.provider.get();
    }
  }
  return nullptr;
}

// Returns the run's limits on that machine: within the cost that was agreed to, beside what the
// machine has cost already.
absl::StatusOr<LeaseLimits> LimitsOn(const RentedNodeRequest& request, const Lease& lease,
                                     int64_t now_ms) {
  const double spent_usd = SpentOn(lease, now_ms).high_usd;
  // A cost that the user named is the limit itself, and no start is to be paid for here.
  if (!request.agreed_usd.has_value() || request.spec->cost_limit_usd.has_value()) {
    return AgreeLimits(*request.spec, lease.usd_per_hour(), spent_usd);
  }
  ASSIGN_OR_RETURN(LeaseLimits limits,
                   LimitsWithin(*request.spec, lease.usd_per_hour(), *request.agreed_usd));
  limits.cost_usd += spent_usd;
  return limits;
}

using MaybeNode = std::optional<RentedNode>;

// Tries one machine. With `take`, claims it for the run; without, changes nothing. Returns nothing
// where it is not idle, or does not fit.
absl::StatusOr<MaybeNode> TryIdle(CommandContext& context, Ledger& ledger,
                                  const std::vector<Market>& markets,
                                  const RentedNodeRequest& request, const Lease& lease, bool take) {
  if (lease.state != LeaseState::kRented || lease.claimed_ms == 0 || lease.address.host.empty() ||
      !FitsRun(*request.spec, lease, request.agreed_usd_per_hour.value_or(0))) {
    return MaybeNode();
  }
  Provider* const provider = WhoCanEnd(ledger, markets, lease);
  if (provider == nullptr || (EndsTooSoon(*request.spec, lease.ends_ms, context.NowMs()) &&
                              !provider->traits().expiry.can_move)) {
    return MaybeNode();
  }
  const absl::StatusOr<LeaseLimits> limits = LimitsOn(request, lease, context.NowMs());
  if (!limits.ok()) return MaybeNode();  // it costs more than was agreed to
  // Keeps two launches from taking the same machine, and from taking one where another launch is
  // about to start its job.
  absl::StatusOr<LeaseLock> use =
      LeaseLock::TakeUse(ledger.state_dir(), lease.lease_id, context.clock);
  if (!use.ok()) return MaybeNode();
  absl::StatusOr<LeaseLock> lock =
      LeaseLock::Take(ledger.state_dir(), lease.lease_id, context.clock);
  if (!lock.ok()) return MaybeNode();
  ASSIGN_OR_RETURN(const NodeTarget target, TargetOfInstance(context, lease, lease.address));
  if (lease.provider == kClusterProvider && !TakesJobs(context, ledger, *provider, lease, *lock)) {
    return MaybeNode();
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, target));
  absl::StatusOr<NodeCalls> calls = NodeCalls::Connect(context, *links, target);
  if (!calls.ok()) return MaybeNode();
  const absl::StatusOr<gpuctl::v1::HelloReply> hello = calls->Hello();
  if (!hello.ok()) return MaybeNode();
  const bool busy =
      std::any_of(hello->jobs().begin(), hello->jobs().end(), [](const gpuctl::v1::Job& job) {
        return job.state() != gpuctl::v1::JOB_STATE_FINISHED &&
               job.state() != gpuctl::v1::JOB_STATE_LOST;
      });
  // Limits of a later time are another gpuctl's, which has the same ledger or another clock.
  const bool others = hello->limits().limits().revision() >= context.NowMs();
  if (busy || others || hello->disk_free_bytes() < request.spec->disk_bytes ||
      !MayHaveTheGpus(*request.spec, lease, *hello)) {
    return MaybeNode();
  }
  RentedNode node;
  node.target = target;
  node.lease = lease;
  node.others_wait = !hello->limits().results_home();
  if (!take) return node;
  Lease renewed = lease;
  renewed.limits = *limits;
  const bool others_wait = node.others_wait;
  if (others_wait) {
    renewed.limits = WithSalvageOfOthers(*limits, lease.limits, lease.usd_per_hour(),
                                         SpentOn(lease, context.NowMs()).high_usd);
  }
  const absl::Status stays =
      Prolong(ledger, renewed, *request.spec, context.clock.Now(), [provider] { return provider; });
  if (IsLedgerFault(stays) || IsDiskFull(stays)) return stays;
  if (!stays.ok()) {
    context.Say(absl::StrCat("left out: ", target.name, ": ", stays.message()));
    return MaybeNode();
  }
  RETURN_IF_ERROR(ledger.UsedBy(lease.lease_id, request.run_id, request.run_name, renewed.limits,
                                GpusOfUse(*request.spec)));
  const absl::Status claimed =
      ClaimNode(context, ledger, *calls, renewed, hello->limits().limits().self_release(),
                *request.spec, hello->node_id(), others_wait ? &hello->limits().limits() : nullptr);
  // The node refuses the run. It may be over, or have become another gpuctl's.
  if (absl::IsFailedPrecondition(claimed) || absl::IsAborted(claimed)) {
    RETURN_IF_ERROR(ledger.NotUsedBy(lease.lease_id, request.run_id, lease.limits));
    context.Say(absl::StrCat("left out: ", target.name, ": ", claimed.message()));
    return MaybeNode();
  }
  RETURN_IF_ERROR(claimed);
  context.Say(absl::StrCat("using ", target.name, ", rented and idle, ",
                           FormatUsd(lease.usd_per_hour()), "/h"));
  // What this run may cost was agreed to; that the machine stays longer was not seen there.
  LeaseLimits before = lease.limits;
  before.cost_usd = renewed.limits.cost_usd;
  if (const std::string raise = DescribeRaise(before, renewed.limits); !raise.empty()) {
    context.Say(absl::StrCat("its limits rise for this run: ", raise));
  }
  node.use = *std::move(use);
  ASSIGN_OR_RETURN(node.lease, ledger.Get(lease.lease_id));
  return node;
}

// Finds an idle machine.
absl::StatusOr<MaybeNode> IdleNode(CommandContext& context, Ledger& ledger,
                                   const std::vector<Market>& markets,
                                   const RentedNodeRequest& request, bool take) {
  ASSIGN_OR_RETURN(const std::vector<Lease> leases, ledger.List(/*open_only=*/true));
  for (const Lease& lease : leases) {
    ASSIGN_OR_RETURN(MaybeNode node, TryIdle(context, ledger, markets, request, lease, take));
    if (node.has_value()) return node;
  }
  return std::nullopt;
}

}  // namespace

bool FitsRun(const RunSpec& spec, const Lease& lease, double most_usd_per_hour) {
  return WhyUnfit(spec, lease, most_usd_per_hour).empty();
}

bool KeepGpus(const Lease& lease, RunSpec& spec) {
  const bool own = !spec.providers.empty() && !CheckMarketName(spec.providers.front()).ok();
  if (own || !spec.gpu.empty() || lease.gpu_name.empty()) return false;
  const absl::StatusOr<GpuRequirement> gpu =
      ParseGpuRequirement(absl::StrCat(lease.gpu_name, ":", std::max(1, lease.gpu_count)));
  if (!gpu.ok()) return false;
  spec.gpu = {*gpu};
  return true;
}

std::string WhyUnfit(const RunSpec& spec, const Lease& lease, double most_usd_per_hour) {
  if (spec.spot != lease.spot) return lease.spot ? "it can be taken away" : "it is not a spot one";
  const double limit = spec.max_price_usd_per_hour.value_or(most_usd_per_hour);
  if ((most_usd_per_hour > 0 && lease.usd_per_hour() > most_usd_per_hour) ||
      (spec.max_price_usd_per_hour.has_value() && lease.usd_per_hour() > limit)) {
    return absl::StrCat("it costs more than ", FormatUsd(limit), "/h");
  }
  if (!spec.providers.empty() && std::find(spec.providers.begin(), spec.providers.end(),
                                           lease.provider) == spec.providers.end()) {
    return "its provider is not one of those that are named";
  }
  if (!spec.slurm.empty()) return "the run asks for an allocation of its own (resources.slurm)";
  if (spec.nodes > 1) {
    return absl::StrCat("a run on several machines takes ", spec.nodes,
                        " idle ones of one region, or none");
  }
  if (!spec.image.empty() || !spec.regions.empty() || !spec.volume.name.empty()) {
    return "not enough is known of its image, region and volume";
  }
  // The trainer uses one GPU a process, and leaves the others of a whole machine idle.
  if (!spec.trainer_json.empty() && spec.processes == 0 && lease.gpu_count > 1 &&
      !spec.gpus.has_value()) {
    return "the trainer uses one GPU, and it has more";
  }
  const bool has_gpus =
      spec.gpu.empty() ||
      std::any_of(spec.gpu.begin(), spec.gpu.end(), [&lease](const GpuRequirement& gpu) {
        return lease.gpu_count >= gpu.count &&
               (gpu.name.empty() || GpuIsModel(lease.gpu_name, gpu.name));
      });
  return has_gpus ? "" : "it has other GPUs";
}

absl::StatusOr<std::optional<RentedNode>> ReuseNode(CommandContext& context, Ledger& ledger,
                                                    const std::vector<Market>& markets,
                                                    const RentedNodeRequest& request) {
  return IdleNode(context, ledger, markets, request, /*take=*/true);
}

absl::StatusOr<std::optional<IdleMachine>> FindIdleNode(CommandContext& context, Ledger& ledger,
                                                        const std::vector<Market>& markets,
                                                        const RentedNodeRequest& request) {
  ASSIGN_OR_RETURN(const std::optional<RentedNode> node,
                   IdleNode(context, ledger, markets, request, /*take=*/false));
  if (!node.has_value()) return std::nullopt;
  return IdleMachine{node->lease, node->others_wait};
}

absl::StatusOr<std::vector<IdleMachine>> FindIdleTogether(CommandContext& context, Ledger& ledger,
                                                          const std::vector<Market>& markets,
                                                          const RentedNodeRequest& request,
                                                          size_t count) {
  // By market, region and GPUs: all machines of a run are alike.
  std::map<std::vector<std::string>, std::vector<Lease>> alike;
  ASSIGN_OR_RETURN(const std::vector<Lease> leases, ledger.List(/*open_only=*/true));
  for (const Lease& lease : leases) {
    const bool joined = std::any_of(markets.begin(), markets.end(), [&lease](const Market& market) {
      return market.name == lease.provider && market.provider->traits().region_network;
    });
    if (joined && !lease.region.empty()) {
      alike[{lease.provider, lease.region, lease.gpu_name, absl::StrCat(lease.gpu_count)}]
          .push_back(lease);
    }
  }
  for (const auto& [kind, there] : alike) {
    if (there.size() < count) continue;
    std::vector<IdleMachine> idle;
    for (const Lease& lease : there) {
      ASSIGN_OR_RETURN(const MaybeNode node,
                       TryIdle(context, ledger, markets, request, lease, /*take=*/false));
      if (node.has_value()) idle.push_back({lease, node->others_wait});
      if (idle.size() == count) return idle;
    }
  }
  return std::vector<IdleMachine>();
}

absl::StatusOr<std::optional<RentedNode>> ReuseThis(CommandContext& context, Ledger& ledger,
                                                    const std::vector<Market>& markets,
                                                    const RentedNodeRequest& request,
                                                    const Lease& lease) {
  return TryIdle(context, ledger, markets, request, lease, /*take=*/true);
}

}  // namespace gpuctl
