// The end of a run as its cluster's scheduler tells it.
#ifndef GPUCTL_CLIENT_FOLLOW_CLUSTER_END_H_
#define GPUCTL_CLIENT_FOLLOW_CLUSTER_END_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/runs/context.h"
#include "client/runs/run_end.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// Returns the end that `words` of Slurm ("TIMEOUT", "CANCELLED by ada", …) make of a run that ended
// as `before`, maybe because its allocation did. Where the allocation came to its own end
// ("COMPLETED"), a run that was killed or lost before keeps its end. Pure.
RunEnd EndByWords(absl::string_view words, RunEnd before);

// True when an allocation's end may have caused this end of a run.
bool MayBeOfAllocation(const RunEnd& end);

// Asks the scheduler about the end of a run whose machine is an allocation, where its end may have
// caused that of the run. It may need seconds to know it. Returns `end` as it is for all other
// runs, and when the scheduler does not answer.
RunEnd WithWordOfCluster(CommandContext& context, const RunRow& row, RunEnd end);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_FOLLOW_CLUSTER_END_H_
