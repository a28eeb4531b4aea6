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

// Returns the highest price in USD per hour that the user was shown, and so agreed to: gpuctl's own
// limit, else that of the dearest machine. 0 when the plan does not rent.
double HighestPrice(const LaunchPlan& plan);

// The rented machine of a launch.
struct Machine {
  NodeTarget target;
  std::vector<NodeTarget> others;  // the further ones, of a run on several
  bool fresh = false;              // it was rented for this launch
  LeaseLock use;                   // keep it until the job is started
  bool others_wait = false;        // results of earlier runs on it are not at home
};

// Takes an idle machine of ours or rents one. Returns RentNode's errors. When the plan's only
// machine was an idle one that is no longer free, the error says why nothing was offered.
absl::StatusOr<Machine> FindMachine(CommandContext& context, Holdings& holdings,
                                    const LaunchFlags& flags, const LaunchPlan& plan);

// True when certainly no node runs, or ever ran, the job of this run.
bool NothingStarted(RunStore& store, const std::string& run_id);

// Ends or keeps a rented machine whose launch may have failed. Works once.
class GiveBack {
 public:
  // `node`: the machine's name. `release`: end the machine when nothing was started on it.
  // `context`, `holdings` and `store` outlive it.
  GiveBack(CommandContext& context, Holdings& holdings, RunStore& store, std::string run_id,
           std::string node, bool release)
      : context_(context),
        holdings_(holdings),
        store_(store),
        run_id_(std::move(run_id)),
        node_(std::move(node)),
        release_(release) {}

  // Ends the machine, or says that it stays rented. Does nothing from the second call on. Stops
  // waiting for the end when `interrupted` returns true.
  void OnFailure(const std::function<bool()>& interrupted);
  // Does the same; Ctrl-C, kill and a closed terminal interrupt the wait.
  void OnFailure();

 private:
  CommandContext& context_;
  Holdings& holdings_;
  RunStore& store_;
  const std::string run_id_;
  const std::string node_;
  const bool release_;
  bool done_ = false;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LAUNCH_FIND_MACHINE_H_
