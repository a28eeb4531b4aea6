// Runs of batches that were taken away and that nobody resumes.
#ifndef GPUCTL_CLIENT_DISPATCH_UNRESUMED_H_
#define GPUCTL_CLIENT_DISPATCH_UNRESUMED_H_

#include <vector>

#include "absl/status/status.h"
#include "client/batch/batch_plan.h"
#include "client/batch/batch_store.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// Ends the wait for those that a user has given up, and for those whose retries are used up, also
// by the restarts of a cluster: their entries are over with the end that their run has. `open`: all
// open batches.
absl::Status EndUnresumed(CommandContext& context, RunStore& runs, BatchStore& batches,
                          const std::vector<BatchView>& open);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_DISPATCH_UNRESUMED_H_
