#include "client/launch/find_machine.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/base/paths.h"
#include "client/launch/after_run.h"
#include "client/rent/claim_node.h"
#include "client/rent/interruptible_hooks.h"
#include "client/rent/rent_node.h"
#include "client/rent/reuse_node.h"
#include "client/runs/run_store.h"
#include "common/base/status_macros.h"
#include "provisioning/market/types.h"

namespace gpuctl {

double HighestPrice(const LaunchPlan& plan) {
  double highest = PriceOf(plan);
  for (const Offer& offer : plan.rental.in_order) {
    highest = std::max(highest, offer.price_usd_per_hour);
  }
  return highest;
}

absl::StatusOr<Machine> FindMachine(CommandContext& context, const LaunchFlags& flags,
                                    LaunchPlan& plan) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const std::unique_ptr<Ledger> ledger,
                   Ledger::Open(paths.state_dir, context.clock));
  RentedNodeRequest request;
  request.spec = &plan.spec;
  request.run_id = plan.row.run_id;
  request.run_name = plan.row.name;
  request.offers = plan.rental.in_order;
  request.agreed_usd_per_hour = HighestPrice(plan);
  request.volume = plan.volume;
  std::optional<RentedNode> node;
  if (!flags.fresh) {
    ASSIGN_OR_RETURN(node, ReuseNode(context, *ledger, request));
  }
  Machine machine;
  machine.fresh = !node.has_value();
  if (machine.fresh) {
    // The only machine that the plan had is gone or busy by now.
    if (plan.rental.idle.has_value()) return plan.rental.nothing_offered;
    ASSIGN_OR_RETURN(node, RentNode(context, *ledger, plan.rental.markets, request));
  }
  plan.target = node->target;
  plan.row.target = node->target;
  machine.use = std::move(node->use);
  return machine;
}

bool NothingStarted(CommandContext& context, const LaunchPlan& plan) {
  const absl::StatusOr<RunStore*> store = context.Store();
  if (!store.ok()) return true;  // nor was it ever told to
  const absl::StatusOr<RunRow> row = (*store)->Get(plan.row.run_id);
  if (!row.ok()) return absl::IsNotFound(row.status());
  return row->end.has_value() && row->end->state == gpuctl::v1::JOB_STATE_UNSPECIFIED;
}

void GiveBack::OnFailure(const std::function<bool()>& interrupted) {
  if (done_) return;
  done_ = true;
  if (release_ && NothingStarted(context_, plan_)) {
    context_.Say(absl::StrCat("nothing was started on ", plan_.target.name,
                              ", which was rented for this launch: ending it"));
    return ReleaseUnused(context_, plan_.row.run_id, interrupted);
  }
  context_.Say(absl::StrCat(plan_.target.name,
                            " stays rented: the next launch may use it, gpuctl "
                            "instances shows it, gpuctl down ends it"));
}

void GiveBack::OnFailure() {
  if (done_) return;
  const InterruptibleHooks interrupt(context_);
  OnFailure(interrupt.hooks().cancelled);
}

}  // namespace gpuctl
