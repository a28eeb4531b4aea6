// The line of a run: the runs that it was resumed from, one after the other.
#ifndef GPUCTL_CLIENT_RUNS_RUN_LINE_H_
#define GPUCTL_CLIENT_RUNS_RUN_LINE_H_

#include <string>
#include <vector>

#include "client/runs/run_store.h"

namespace gpuctl {

// Returns the ids of the line of `row`, its own first. The line ends behind one that was removed
// from the list.
std::vector<std::string> LineOf(RunStore& store, const RunRow& row);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RUNS_RUN_LINE_H_
