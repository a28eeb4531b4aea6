// The plan of a launch, made before anything is rented, sent or recorded.
#ifndef GPUCTL_CLIENT_PLAN_LAUNCH_PLAN_H_
#define GPUCTL_CLIENT_PLAN_LAUNCH_PLAN_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/base/node_target.h"
#include "client/config/settings.h"
#include "client/keys/market_access.h"
#include "client/market/holdings.h"
#include "client/market/last_time.h"
#include "client/market/offer_plan.h"
#include "client/plan/launch_flags.h"
#include "client/plan/like_run.h"
#include "client/plan/start_point.h"
#include "client/rent/join_machine.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "client/spec/run_spec.h"
#include "client/trainer/trainer_choice.h"
#include "client/trainer/trainer_inputs.h"
#include "client/workdir/data_trees.h"
#include "client/workdir/workdir.h"
#include "gpuctl/v1/run.pb.h"
#include "provisioning/ledger/lease.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// The machines that a run could rent.
struct RentalPlan {
  std::vector<Market> markets;         // none when the machine is the user's own
  std::vector<MarketAnswer> left_out;  // markets that cannot run the image, and why
  OfferPlan offers;
  std::vector<Offer> in_order;  // in the order in which they are tried
  // The most that a machine may cost in USD per hour where the spec names no max_price, and the
  // cheapest offer that only this limit leaves out.
  std::optional<double> own_limit_usd_per_hour;
  std::optional<Offer> next_dearer;
  // An idle machine of ours that fits: it is tried first. Without offers beside it the run uses it
  // or fails with `nothing_offered`.
  std::optional<Lease> idle;
  std::vector<Lease> more_idle;  // the others, for a run on several: all of them are idle
  bool others_wait = false;      // results of earlier runs on one of them are not at home
  std::vector<Lease> waits_on;   // those on which they are
  // Idle machines of ours that bill and that the run does not use, and why, for people.
  std::vector<std::string> unused_idle;
  absl::Status nothing_offered;
  // True when something can be rented, or used, now. Only a plan for later may have nothing.
  bool has_machine() const { return idle.has_value() || !in_order.empty(); }
};

// A plan does not change once it is made and shown. A Launch (client/launch/launch.h) adds the
// machine.
struct LaunchPlan {
  RunSpec spec;
  Settings settings;  // the defaults in `spec`
  bool rents = false;
  RentalPlan rental;
  std::optional<Volume> volume;  // the machine mounts it at its mount_path
  // When not `rents`: the user's own, or one that is rented already.
  NodeTarget own_machine;
  std::optional<Lease> joined;  // the lease of that one
  std::optional<Workdir> workdir;
  // False when the run does not say which of its files are results, as far as that can be seen
  // (NamesResults), and nobody asked for all of them: they are lost with a rented machine.
  bool names_results = true;
  // Those of --down and --pull that were given and that only this process carries out.
  std::vector<std::string> needs_this_gpuctl;
  TrainerInputs inputs;  // what the trainer reads; in `data`, too
  std::vector<DataTree> data;
  std::optional<TrainerWays> trainer;  // of the built-in one; the machine decides which
  gpuctl::v1::JobSpec job;
  std::optional<LastTime> last_time;  // absent where the same work is not known
  RunRow row;                         // complete, except for the machine and the stored spec
  std::map<std::string, std::string> secrets;
  std::optional<RegistryLogin> login;  // for the image; only when `rents`
  // The price per hour whose cost the user has agreed to before, for a run of a batch; 0: the user
  // agrees to that of the machine that is tried first.
  double agreed_usd_per_hour = 0;
  // The other machines of a run on several, which are the user's own; `own_machine` is the first.
  std::vector<NodeTarget> other_machines;
  // The ids of the other parts of a run on several machines, by rank; the first part's is the
  // run's.
  std::vector<std::string> member_ids;
  // With what the parts go on, by rank, where not all go on with the same: each as the tree in
  // `data`, or absent for a part that gets none.
  std::vector<std::optional<DataTree>> starts;
};

// Reads and checks everything. Asks the markets when the run rents a machine. A run rents when the
// user names a market, when the user asks for something that only a rented machine has, or when no
// machine is named and there is a key for a market. Errors are for the user and have hints; exit
// codes 120 to 122 as CheckPlan. `like`: the run whose spec the flags change
// (null: that of the run file), and whose own machine it takes, unless a flag names another place.
// `on`: the machine that --on names (null: none).
absl::StatusOr<LaunchPlan> MakeLaunchPlan(CommandContext& context, Holdings& holdings,
                                          const LaunchFlags& flags, const LikeRun* like = nullptr,
                                          const NamedMachine* on = nullptr);

// Plans the same for a complete spec. `machines`: the run's own, when the flags name none (none: as
// for launch). `resume`: the checkpoints to go on from: none, one, or one for each part of a run on
// several machines. `settings`: those of which BuildRunSpec has applied a part.
absl::StatusOr<LaunchPlan> PlanLaunch(CommandContext& context, Holdings& holdings,
                                      const LaunchFlags& flags, RunSpec spec,
                                      const std::vector<NodeTarget>& machines,
                                      const std::vector<StartPoint>& resume,
                                      Settings settings = {});

// Returns the plan of the part `rank` of a run on several machines: it may go on with a checkpoint
// of its own.
LaunchPlan PlanOfPart(const LaunchPlan& plan, int rank);

// Finds what the same work took the last time, for the plan of a run that rents.
void AddLastTime(Holdings& holdings, RunStore& store, int64_t now_ms, LaunchPlan& plan);

// Returns the offer that is rented first. Requires a plan with offers.
const Offer& Cheapest(const LaunchPlan& plan);

// Returns the market's name of the machine that is tried first. Requires a plan that rents and has
// a machine.
const std::string& MarketOf(const LaunchPlan& plan);

// Returns how many machines the plan rents; 0 when it does not rent. An allocation counts as one.
int MachinesToRent(const LaunchPlan& plan);

// Returns the price in USD per hour of all machines that are tried first; without any their limit.
// 0 when the plan does not rent.
double PriceOf(const LaunchPlan& plan);

// Returns the most that the machines for the plan may cost together, in USD per hour, where one may
// cost the user's max_price, else gpuctl's own limit, else the price of the dearest offer. 0 when
// the plan does not rent.
double PriceLimitOf(const LaunchPlan& plan);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_PLAN_LAUNCH_PLAN_H_
