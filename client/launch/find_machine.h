// The machine of a launch: found before its job, given back when nothing was started on it.
#ifndef GPUCTL_CLIENT_LAUNCH_FIND_MACHINE_H_
#define GPUCTL_CLIENT_LAUNCH_FIND_MACHINE_H_

#include <functional>

#include "absl/status/statusor.h"
#include "client/launch/launch_flags.h"
#include "client/launch/launch_plan.h"
#include "client/runs/context.h"
#include "provisioning/ledger/lease_lock.h"
#include "provisioning/ledger/ledger.h"

namespace gpuctl {

// Returns the highest price per hour that the user was shown, and so agreed to; 0 when the plan is
// not to rent.
double HighestPrice(const LaunchPlan& plan);

// The machine of a launch.
struct Machine {
  bool fresh = false;  // it was rented for it
  LeaseLock use;
};

// Takes an idle machine of ours or rents one, and makes it the plan's target. Errors as RentNode's,
// or why nothing was offered when the plan's only machine, an idle one, is no longer to be had.
absl::StatusOr<Machine> FindMachine(CommandContext& context, const LaunchFlags& flags,
                                    LaunchPlan& plan);

// True when it is certain that no node runs, or ever ran, the job of this launch.
bool NothingStarted(CommandContext& context, const LaunchPlan& plan);

// Settles what becomes of a rented machine whose launch may have failed. Used once. `context` and
// `plan` outlive it.
class GiveBack {
 public:
  // `release`: end the machine when nothing was started on it.
  GiveBack(CommandContext& context, const LaunchPlan& plan, bool release)
      : context_(context), plan_(plan), release_(release) {}

  // Ends the machine, or says that it stays rented. Does nothing from the second call on.
  // `interrupted`: give up waiting for its end.
  void OnFailure(const std::function<bool()>& interrupted);
  // The same; Ctrl-C, kill and a closed terminal interrupt it.
  void OnFailure();

 private:
  CommandContext& context_;
  const LaunchPlan& plan_;
  const bool release_;
  bool done_ = false;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LAUNCH_FIND_MACHINE_H_
