// The verbs instances and reap, without their command lines.
#ifndef GPUCTL_CLIENT_VERBS_MONEY_VERBS_H_
#define GPUCTL_CLIENT_VERBS_MONEY_VERBS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"

namespace gpuctl {

// Prints everything that bills. Returns the process's exit code.
absl::StatusOr<int> ShowInstances(CommandContext& context, Holdings& holdings, RunStore* store,
                                  bool quiet = false);

struct ReapFlags {
  bool dry_run = false;
  bool yes = false;
  bool wait = true;
  std::vector<std::string> owners;  // judged like our own (ReconcileOptions::also_owners)
  // Called for each instance that was to be ended: which one, whether it was, and what it cost.
  std::function<void(const std::string&, const absl::Status&, const std::string&)> reaped;
};
absl::StatusOr<int> ReapLeaks(CommandContext& context, Holdings& holdings, RunStore* store,
                              const ReapFlags& flags);

// Prints as JSON what ReapLeaks prints where there is nothing.
void PrintNothingReaped(const CommandContext& context, bool dry_run);

// Lets this computer call gpuctl keep every so often, or ends that, and says so.
absl::StatusOr<int> ScheduleKeep(CommandContext& context, bool install, const std::string& every);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_MONEY_VERBS_H_
