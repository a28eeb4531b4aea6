// What becomes of the rented machine when its run is done with it: --down, a failed launch, and
// what is said where it stays.
#ifndef GPUCTL_CLIENT_LAUNCH_AFTER_RUN_H_
#define GPUCTL_CLIENT_LAUNCH_AFTER_RUN_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// Brings all results of `row`, which has ended, to ./NAME as pull does, and ends the bill of the
// rented machine that it used last, unless another run has begun to use it. When results could not
// be brought, the machine is kept, and the error says until when. OK where nothing is rented.
absl::Status BringHomeAndRelease(CommandContext& context, Holdings& holdings, const RunRow& row);

// Ends the bill of the machine that was rented for `run_id` and on which nothing was ever started.
// Says so, or what bills on. `interrupted`: give up waiting for it.
void ReleaseUnused(CommandContext& context, Holdings& holdings, const std::string& run_id,
                   const std::function<bool()>& interrupted);

// After `row` has just ended: what is left to do about it. For one that was preempted, how it goes
// on; for one on a rented machine that stays, what that costs until when, and how to end it now. Of
// the machine nothing where another run uses it by now, and nothing later than its idle limit after
// the end, when it may be gone.
void TellWhatIsLeft(CommandContext& context, Holdings& holdings, const RunRow& row);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LAUNCH_AFTER_RUN_H_
