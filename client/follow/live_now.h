// Which runs use a rented machine, by its own word.
#ifndef GPUCTL_CLIENT_FOLLOW_LIVE_NOW_H_
#define GPUCTL_CLIENT_FOLLOW_LIVE_NOW_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "provisioning/ledger/ledger.h"

namespace gpuctl {

// Returns the names of the runs that are live on the lease's machine, without those of `except`,
// which has their ids. A run whose end nobody has seen yet counts only if its node does not tell of
// the end within seconds; what it tells is recorded.
absl::StatusOr<std::vector<std::string>> LiveNowOn(CommandContext& context, RunStore& store,
                                                   const Lease& lease,
                                                   const std::set<std::string>& except);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_FOLLOW_LIVE_NOW_H_
