// What a launch will do, found out before anything is rented, sent or recorded.
#ifndef GPUCTL_CLIENT_LAUNCH_LAUNCH_PLAN_H_
#define GPUCTL_CLIENT_LAUNCH_LAUNCH_PLAN_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/base/node_target.h"
#include "client/launch/launch_flags.h"
#include "client/market/holdings.h"
#include "client/market/market_access.h"
#include "client/market/offer_plan.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "client/spec/run_spec.h"
#include "client/workdir/data_trees.h"
#include "client/workdir/trainer_kit.h"
#include "client/workdir/workdir.h"
#include "gpuctl/v1/run.pb.h"
#include "provisioning/ledger/lease.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// Where a run that rents could go.
struct RentalPlan {
  std::vector<Market> markets;  // none when the machine is the user's own
  OfferPlan offers;
  std::vector<Offer> in_order;  // as they are to be tried
  // Where there are none, an idle machine of ours that fits: the run uses that one or fails with
  // `nothing_offered`.
  std::optional<Lease> idle;
  absl::Status nothing_offered;
};

// The checkpoint at home that a run begins with.
struct StartPoint {
  std::string from_run_id;
  std::string path;      // absolute; a directory, or a script's single file
  bool is_file = false;  // which
};

// Once made it does not change: what a machine adds is a Launch (client/launch/launch.h).
struct LaunchPlan {
  RunSpec spec;
  bool rents = false;
  RentalPlan rental;
  std::optional<Volume> volume;  // that the machine mounts, at its mount_path
  NodeTarget own_machine;        // the user's, where the run goes; without `rents`
  std::optional<Workdir> workdir;
  std::vector<DataTree> data;
  // The built-in trainer, when it goes along.
  std::optional<TrainerKit> kit;
  std::optional<DataTree> kit_tree;
  gpuctl::v1::JobSpec job;
  RunRow row;  // complete but for the machine and the stored spec
  std::map<std::string, std::string> secrets;
};

// Reads and checks everything; asks the markets when a machine is to be rented. That is the case
// when one is named, when something is asked for that only a rented machine has, or when no machine
// is named and there is a key for a market. Errors are the user's, with hints; exit codes 120 to
// 122 as CheckPlan.
absl::StatusOr<LaunchPlan> MakeLaunchPlan(CommandContext& context, Holdings& holdings,
                                          const LaunchFlags& flags);

// The same for a spec that is complete. `machine`: the run's own machine, when the flags name none
// (null: as for launch); `resume`: where it goes on (null: from the beginning).
absl::StatusOr<LaunchPlan> PlanLaunch(CommandContext& context, Holdings& holdings,
                                      const LaunchFlags& flags, RunSpec spec,
                                      const NodeTarget* machine, const StartPoint* resume);

// Returns the offer that is tried first. The plan is to rent, and has no idle machine.
const Offer& Cheapest(const LaunchPlan& plan);

// Returns the name of the market of the machine that is tried first. The plan is to rent.
const std::string& MarketOf(const LaunchPlan& plan);

// Returns the price per hour of the machine that is tried first; 0 when the plan is not to rent.
double PriceOf(const LaunchPlan& plan);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LAUNCH_LAUNCH_PLAN_H_
