// Starts one entry of a batch: claims it, launches its run, records what came of it.
#ifndef GPUCTL_CLIENT_DISPATCH_START_ENTRY_H_
#define GPUCTL_CLIENT_DISPATCH_START_ENTRY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client/batch/batch_store.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// What a process is told that starts an entry.
struct StartOrder {
  std::string entry_id;
  std::string host;        // BatchHost::host; "": a rented machine
  std::string join;        // a machine of the batch's that other runs have; "": one of its own
  std::string behind;      // waits until the machine has this entry, or never gets it; "": none
  std::string pays_after;  // waits until this entry is claimed, or is not; "": none
  // The lease of the machine that was rented for it already, whose lock this process got as its
  // stdin; "": none was.
  std::string task;
};

// Starts an entry within its batch's limits, and returns once its job runs. What came of it is in
// the store, so this is no error: started, waiting with the reason and the time of the next try, or
// failed. Does nothing when somebody else starts it. A process of its own calls this: it holds the
// entry's lock until it ends.
absl::Status StartEntry(CommandContext& context, Holdings& holdings, RunStore& runs,
                        BatchStore& batches, const StartOrder& order);

// Returns when something is tried again that has failed so often before.
int64_t NextTryMs(int64_t now_ms, int failures);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_DISPATCH_START_ENTRY_H_
