// Finds the run that a command line means, also when it names none.
#ifndef GPUCTL_CLIENT_RUNS_FIND_RUN_H_
#define GPUCTL_CLIENT_RUNS_FIND_RUN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/base/flag_set.h"
#include "client/runs/run_store.h"
#include "client/terminal/console.h"

namespace gpuctl {

// The help text of the argument RUN where it may be missing.
inline constexpr char kRunOrNewestLive[] =
    "Name, id, or the beginning of one; @last: the newest\nrun; without it: the newest live one";

// Returns the newest run whose end is not recorded, and tells its name. NOT_FOUND (usage) when
// there is none.
absl::StatusOr<RunRow> FindNewestLiveRun(const Console& console, RunStore& store);

// Returns the run of the argument `run` with the value `reference`, or the newest live one when the
// command line has no such argument. An empty value is no missing one: a script's variable may be
// empty.
absl::StatusOr<RunRow> FindRun(const Console& console, RunStore& store, const FlagSet::Flag& run,
                               const std::string& reference);
// Does the same for an argument that takes several runs. Returns at least one.
absl::StatusOr<std::vector<RunRow>> FindRuns(const Console& console, RunStore& store,
                                             const std::vector<std::string>& references);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RUNS_FIND_RUN_H_
