// The machine of a launch: found before the job starts, given back when nothing was started on it.
#ifndef GPUCTL_CLIENT_LAUNCH_FIND_MACHINE_H_
#define GPUCTL_CLIENT_LAUNCH_FIND_MACHINE_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/base/node_target.h"
#include "client/market/holdings.h"
#include "client/plan/launch_flags.h"
#include "client/plan/launch_plan.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "provisioning/ledger/lease_lock.h"

namespace gpuctl {

// Returns the highest price in USD per hour of one machine that the user was shown, and so agreed
// to: gpuctl's own limit, else that of the dearest machine. 0 when the plan does not rent.
double HighestPrice(const LaunchPlan& plan);

// The rented machine of a launch.
struct Machine {
  NodeTarget target;
  std::vector<NodeTarget> others;  // the further ones, of a run on several
  bool fresh = false;              // they were rented for this launch
  std::vector<LeaseLock> uses;     // keep them until the job is started
  bool others_wait = false;        // results of earlier runs on it are not at home
};

// Takes an idle machine of ours or rents one, or all machines of a run on several. Returns
// RentNode's errors. When the plan's only
// machine was an idle one that is no longer free, the error says why nothing was offered.
absl::StatusOr<Machine> FindMachine(CommandContext& context, Holdings& holdings,
                                    const LaunchFlags& flags, const LaunchPlan& plan);

// True when certainly no node runs, or ever ran, the job of this run.
bool NothingStarted(RunStore& store, const std::string& run_id);

// Ends or keeps the rented machines whose launch may have failed. Works once.
class GiveBack {
 public:
  // `run_ids`: those of the run's parts, the run's own first. `node`: the name of the machine, or
  // the names. `release`: end the machines when nothing was started on them. `context`, `holdings`
  // and `store` outlive it.
  GiveBack(CommandContext& context, Holdings& holdings, RunStore& store,
           std::vector<std::string> run_ids, std::string node, bool release)
      : context_(context),
        holdings_(holdings),
        store_(store),
        run_ids_(std::move(run_ids)),
        node_(std::move(node)),
        release_(release) {}

  // Ends the machines, or says that they stay rented. Does nothing from the second call on. Stops
  // waiting for the end when `interrupted` returns true.
  void OnFailure(const std::function<bool()>& interrupted);
  // Does the same; Ctrl-C, kill and a closed terminal interrupt the wait.
  void OnFailure();

 private:
  CommandContext& context_;
  Holdings& holdings_;
  RunStore& store_;
  const std::vector<std::string> run_ids_;
  const std::string node_;
  const bool release_;
  bool done_ = false;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LAUNCH_FIND_MACHINE_H_
