// A run on a machine that may have runs already: launch --on.
#ifndef GPUCTL_CLIENT_RENT_JOIN_MACHINE_H_
#define GPUCTL_CLIENT_RENT_JOIN_MACHINE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/base/node_target.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "client/spec/run_spec.h"

namespace gpuctl {

struct NamedMachine {
  NodeTarget target;
  std::optional<Lease> lease;  // absent: it is the user's own
};

// Finds the machine of the run `name`, else the rented machine of that name ("runpod/8fj2k1" or
// "8fj2k1"), else the one that an earlier run used under that name. NOT_FOUND when there is none;
// FAILED_PRECONDITION when it was rented and its bill has ended.
absl::StatusOr<NamedMachine> FindMachineOf(CommandContext& context, Holdings& holdings,
                                           RunStore& store, const std::string& name);

// Records that the run `run_id` uses the rented machine of `lease`, whose limits stay as they are,
// and tells the node what counts as the run's results. What counted as those of other runs goes on
// to count.
absl::Status JoinMachine(CommandContext& context, Holdings& holdings, const Lease& lease,
                         const RunSpec& spec, const std::string& run_id,
                         const std::string& run_name);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RENT_JOIN_MACHINE_H_
