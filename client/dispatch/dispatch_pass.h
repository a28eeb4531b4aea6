// One pass over the batches: learns what became of their runs, and starts what may start.
#ifndef GPUCTL_CLIENT_DISPATCH_DISPATCH_PASS_H_
#define GPUCTL_CLIENT_DISPATCH_DISPATCH_PASS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/batch/batch_plan.h"
#include "client/batch/batch_store.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// Returns the batches with their entries as they are stored now: all, or those in `names`; with
// `open_only` only those of which something is to come. Brings entries up to date whose run was
// resumed as another one.
absl::StatusOr<std::vector<BatchView>> ReadBatches(RunStore& runs, BatchStore& batches,
                                                   const std::vector<std::string>& names,
                                                   bool open_only);

// Marks those that wait in their machine's own queue, as far as it was told here.
void MarkQueued(CommandContext& context, std::vector<BatchView>& views);

// Returns why each waiting entry of `views` waits, by its id, given all open batches.
absl::StatusOr<std::map<std::string, std::string>> WhyTheyWait(CommandContext& context,
                                                               Holdings& holdings, RunStore& runs,
                                                               BatchStore& batches);

// Asks the machines of the batches' live runs, and of other runs that hold their machines up, for
// at most `limit`; `tell`: says who did not answer. True when a link's thread does not end: then
// call ExitAtOnce at the end.
absl::StatusOr<bool> AskMachines(CommandContext& context, RunStore& runs, BatchStore& batches,
                                 absl::Duration limit, bool tell);

// Starts what may start in all batches, each entry in a process of its own that this one does not
// end, and says on stderr which machines are rented for them, with the price. Waits for them for
// `patience`, and starts more in place of those that are done; those that take longer go on by
// themselves.
absl::Status StartEntries(CommandContext& context, Holdings& holdings, RunStore& runs,
                          BatchStore& batches, absl::Duration patience);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_DISPATCH_DISPATCH_PASS_H_
