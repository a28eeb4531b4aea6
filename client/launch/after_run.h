// Ends or keeps a rented machine after its run: --down, a failed launch, and what the user is told
// when the machine stays.
#ifndef GPUCTL_CLIENT_LAUNCH_AFTER_RUN_H_
#define GPUCTL_CLIENT_LAUNCH_AFTER_RUN_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// Brings all results of `row`, which has ended, to the directory `to` as pull does, and those of
// its other machines beside it (client/launch/member_results.h); nothing of a run that no machine
// ever had. Then ends the bill of the rented machine that the run used last, or of each that a run
// on several has, unless another run has begun to use it. Keeps a machine whose results could not
// be brought, and says until when. FAILED_PRECONDITION when it stays because of results of earlier
// runs. OK where nothing is rented.
absl::Status BringHomeAndRelease(CommandContext& context, Holdings& holdings, RunStore& store,
                                 const RunRow& row, const std::string& to);

// Warns that --down will leave the rented machine of the run `run_id`, because results of earlier
// runs on it are not at home.
void TellOfOthersResults(CommandContext& context, RunStore& store, const Lease& lease,
                         const std::string& run_id);

// Ends the bill of the machine that was rented for `run_id` and on which nothing was ever started.
// Says so, or says what bills on. Stops waiting for the machine's end when `interrupted` returns
// true.
void ReleaseUnused(CommandContext& context, Holdings& holdings, const std::string& run_id,
                   const std::function<bool()>& interrupted);

// Tells what is left to do about `row`, which has just ended. For a preempted run: how to resume
// it. For a run on a rented machine that stays: what the machine costs, until when, and how to end
// it now. Says nothing about the machine when another run uses it by now, nor once the idle limit
// has passed since the run's end, because the machine may be gone.
void TellWhatIsLeft(CommandContext& context, Holdings& holdings, RunStore& store,
                    const RunRow& row);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LAUNCH_AFTER_RUN_H_
