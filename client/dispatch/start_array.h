// Starts entries of a batch as tasks of an array: one request rents all their allocations, and each
// entry then starts on its own.
#ifndef GPUCTL_CLIENT_DISPATCH_START_ARRAY_H_
#define GPUCTL_CLIENT_DISPATCH_START_ARRAY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/batch/batch_store.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"
#include "provisioning/ledger/lease.h"

namespace gpuctl {

// Rents an array for those of the entries that wait, all of one batch, and starts each on its task
// in a process of its own; several arrays, where one cannot have all of them and nothing limits how
// many run at once. Returns when the last of them has started, or has not. What came of them is in
// the store, so this is no error; a task that no entry took is given back. Does nothing while
// another process does this for the batch. A process of its own calls this.
absl::Status StartArray(CommandContext& context, Holdings& holdings, BatchStore& batches,
                        const std::vector<std::string>& entry_ids);

// Returns "submitted array 17 at slurm" for a task of it; "" for any other lease.
std::string DescribeArray(const Lease& lease);

// Returns the lock file below the state directory of the process that does this for a batch.
std::string ArrayLockPath(absl::string_view state_dir, absl::string_view batch_id);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_DISPATCH_START_ARRAY_H_
