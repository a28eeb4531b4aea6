// Gives a node the values of a run's secrets again: its agent kept them in memory and was
// restarted.
#ifndef GPUCTL_CLIENT_SHOW_GIVE_SECRETS_H_
#define GPUCTL_CLIENT_SHOW_GIVE_SECRETS_H_

#include "absl/status/status.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// Reads the values as a launch does, and sends them to the node that has the job of `row`. Blocks
// while the node answers. NOT_FOUND names a secret without a value here.
absl::Status GiveSecrets(CommandContext& context, RunStore& store, const RunRow& row);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SHOW_GIVE_SECRETS_H_
