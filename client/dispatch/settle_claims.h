// Entries of batches whose start was cut short: finds out whether their runs exist.
#ifndef GPUCTL_CLIENT_DISPATCH_SETTLE_CLAIMS_H_
#define GPUCTL_CLIENT_DISPATCH_SETTLE_CLAIMS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/batch/batch_store.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// Returns the lock file that shows that a process is there, or is about to be, that starts the
// entry, and that no machine has its job yet: the pass takes the lock and gives it to the process
// as its stdin.
std::string TurnLockPath(absl::string_view state_dir, absl::string_view entry_id);

// Lets the entries of a batch wait on whose start waits for its turn: their processes end instead
// of claiming them. One that has just claimed its entry goes on. Returns once each has done either,
// so that what is stored of the batch then holds; after five seconds in any case.
absl::Status TakeTurnsBack(CommandContext& context, BatchStore& batches,
                           absl::string_view batch_id);

// Settles a claimed entry. The caller holds its lock, so that nobody starts it. When a node has its
// run the entry is started. When none has, and none will, it waits again; a node that was asked to
// start it is told not to first. Returns the error of a node that could not be asked: then the
// entry stays as it is.
absl::Status SettleClaim(CommandContext& context, RunStore& runs, BatchStore& batches,
                         const Entry& entry);

// Settles the entries that nobody starts any more. Says on stderr what could not be settled.
absl::Status SettleClaims(CommandContext& context, RunStore& runs, BatchStore& batches);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_DISPATCH_SETTLE_CLAIMS_H_
