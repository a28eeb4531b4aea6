// Starts one entry of a batch: claims it, launches its run, records what came of it.
#ifndef GPUCTL_CLIENT_DISPATCH_START_ENTRY_H_
#define GPUCTL_CLIENT_DISPATCH_START_ENTRY_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/batch/batch_store.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// Starts the entry `entry_id` on the batch's machine `host` ("": on a rented one; on `join`, a
// machine of the batch's that other runs have, or if that is "" on one of its own), within the
// batch's limits, and returns once its job runs. What came of it is in the store, so this is no
// error: started, waiting with the reason and the time of the next try, or failed. Does nothing
// when somebody else starts it. Waits until the machine has the entry of `behind`, or never gets
// it, and until the entry `pays_after` is claimed, or is not. A process of its own calls this: it
// holds the entry's lock until it ends.
absl::Status StartEntry(CommandContext& context, Holdings& holdings, RunStore& runs,
                        BatchStore& batches, const std::string& entry_id, const std::string& host,
                        const std::string& join, const std::string& behind,
                        const std::string& pays_after);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_DISPATCH_START_ENTRY_H_
