// What pull says of a run that is over and has none of the results it looks for.
#ifndef GPUCTL_CLIENT_HOME_NOTHING_TO_BRING_H_
#define GPUCTL_CLIENT_HOME_NOTHING_TO_BRING_H_

#include "absl/status/status.h"
#include "client/runs/run_store.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// Returns NOT_FOUND, with the cause kNothingToBring (client/base/exit_codes.h), with the patterns
// that matched nothing and the files that the job made instead, or with what the checkpoint
// patterns match and the node takes for no whole checkpoint. `found` is the reply to a RemoveJob
// with dry_run.
absl::Status NothingToBring(const RunRow& row, const gpuctl::v1::RemoveJobReply& found);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_HOME_NOTHING_TO_BRING_H_
