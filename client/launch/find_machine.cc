#include "client/launch/find_machine.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/launch/after_run.h"
#include "client/launch/rent_together.h"
#include "client/market/price_limit.h"
#include "client/rent/claim_node.h"
#include "client/rent/interruptible_hooks.h"
#include "client/rent/lease_limits.h"
#include "client/rent/rent_node.h"
#include "client/rent/reuse_node.h"
#include "client/runs/run_store.h"
#include "client/terminal/wait_line.h"
#include "common/base/status_macros.h"
#include "provisioning/market/types.h"

namespace gpuctl {

double HighestPrice(const LaunchPlan& plan) {
  const int machines = std::max(1, MachinesToRent(plan));
  double highest =
      std::max(PriceOf(plan) / machines, plan.rental.own_limit_usd_per_hour.value_or(0));
  for (const Offer& offer : plan.rental.in_order) {
    highest = std::max(highest, offer.price_usd_per_hour);
  }
  return highest;
}

namespace {

// Adds to the error of a launch that found no machine what a higher price would allow.
absl::Status WithDearer(const absl::Status& status, const LaunchPlan& plan) {
  const bool none_left = absl::IsNotFound(status) && ExitCodeOf(status) == kExitCapacity &&
                         CauseOf(status) != kBadMachine;
  if (!none_left || !plan.rental.next_dearer.has_value()) return status;
  return WithNextPrice(status, *plan.rental.own_limit_usd_per_hour, *plan.rental.next_dearer);
}

// Rents all machines of a run on several.
absl::StatusOr<Machine> FindMachines(CommandContext& context, Holdings& holdings, Ledger& ledger,
                                     const LaunchFlags& flags, const LaunchPlan& plan,
                                     const RentedNodeRequest& request) {
  std::vector<RentedPart> parts = {{plan.row.run_id, plan.row.name}};
  for (const std::string& run_id : plan.member_ids) {
    parts.push_back({run_id, absl::StrCat(plan.row.name, ".node", parts.size())});
  }
  std::vector<RentedNode> nodes;
  if (!flags.fresh && plan.rental.idle.has_value()) {
    std::vector<Lease> idle = {*plan.rental.idle};
    idle.insert(idle.end(), plan.rental.more_idle.begin(), plan.rental.more_idle.end());
    ASSIGN_OR_RETURN(nodes,
                     ReuseTogether(context, ledger, plan.rental.markets, request, parts, idle));
  }
  Machine machine;
  machine.fresh = nodes.empty();
  if (machine.fresh) {
    // The plan's only machines are gone or busy by now.
    if (plan.rental.in_order.empty()) return plan.rental.nothing_offered;
    const WaitLine wait(context, context.clock,
                        absl::StrCat(plan.row.name, " waits for its machines"));
    absl::StatusOr<std::vector<RentedNode>> rented =
        RentTogether(context, holdings, request, parts);
    if (!rented.ok()) return WithDearer(rented.status(), plan);
    nodes = *std::move(rented);
  }
  for (RentedNode& node : nodes) {
    machine.others_wait = machine.others_wait || node.others_wait;
    machine.uses.push_back(std::move(node.use));
    machine.others.push_back(std::move(node.target));
  }
  machine.target = std::move(machine.others.front());
  machine.others.erase(machine.others.begin());
  return machine;
}

}  // namespace

absl::StatusOr<Machine> FindMachine(CommandContext& context, Holdings& holdings,
                                    const LaunchFlags& flags, const LaunchPlan& plan) {
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.OpenLedger());
  RentedNodeRequest request;
  request.spec = &plan.spec;
  request.run_id = plan.row.run_id;
  request.run_name = plan.row.name;
  request.offers = plan.rental.in_order;
  request.agreed_usd_per_hour = HighestPrice(plan);
  request.agreed_usd =
      AgreeLimits(plan.spec, std::max(PriceOf(plan), plan.agreed_usd_per_hour)).cost_usd;
  request.volume = plan.volume;
  request.login = plan.login;
  request.rented = flags.rented.get();
  if (flags.ssh_within_s > 0) request.ssh_within = absl::Seconds(flags.ssh_within_s);
  if (MachinesToRent(plan) > 1) {
    return FindMachines(context, holdings, *ledger, flags, plan, request);
  }
  std::optional<RentedNode> node;
  if (!flags.fresh && flags.rented == nullptr) {
    ASSIGN_OR_RETURN(node, ReuseNode(context, *ledger, plan.rental.markets, request));
  }
  Machine machine;
  machine.fresh = !node.has_value();
  if (machine.fresh) {
    // The plan's only machine is gone or busy by now.
    if (plan.rental.in_order.empty()) return plan.rental.nothing_offered;
    absl::StatusOr<RentedNode> rented = [&] {
      const WaitLine wait(context, context.clock,
                          absl::StrCat(plan.row.name, " waits for its machine"));
      return RentNode(context, *ledger, plan.rental.markets, request);
    }();
    if (!rented.ok()) return WithDearer(rented.status(), plan);
    node = *std::move(rented);
  }
  machine.target = std::move(node->target);
  machine.others = std::move(node->others);
  machine.uses.push_back(std::move(node->use));
  machine.others_wait = node->others_wait;
  return machine;
}

bool NothingStarted(RunStore& store, const std::string& run_id) {
  const absl::StatusOr<RunRow> row = store.Get(run_id);
  if (!row.ok()) return absl::IsNotFound(row.status());
  return row->end.has_value() && row->end->state == gpuctl::v1::JOB_STATE_UNSPECIFIED;
}

void GiveBack::OnFailure(const std::function<bool()>& interrupted) {
  if (done_) return;
  done_ = true;
  const bool several = run_ids_.size() > 1;
  if (release_ && NothingStarted(store_, run_ids_.front())) {
    context_.Say(absl::StrCat("nothing was started on ", node_,
                              several ? ", which were rented for this launch: ending them"
                                      : ", which was rented for this launch: ending it"));
    for (const std::string& run_id : run_ids_) {
      ReleaseUnused(context_, holdings_, run_id, interrupted);
    }
    return;
  }
  context_.Warn(absl::StrCat(node_, several ? " stay" : " stays",
                             " rented: the next launch may use ", several ? "them" : "it",
                             ", gpuctl instances shows ", several ? "them" : "it",
                             ", gpuctl down ends ", several ? "them" : "it"));
}

void GiveBack::OnFailure() {
  if (done_) return;
  const InterruptibleHooks interrupt(context_);
  OnFailure(interrupt.hooks().cancelled);
}

}  // namespace gpuctl
