// An earlier run whose launch is done again.
#ifndef GPUCTL_CLIENT_PLAN_LIKE_RUN_H_
#define GPUCTL_CLIENT_PLAN_LIKE_RUN_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/base/node_target.h"
#include "client/plan/launch_flags.h"
#include "client/runs/run_store.h"
#include "client/spec/launch_record.h"
#include "client/spec/run_spec.h"

namespace gpuctl {

struct LikeRun {
  RunRow row;
  std::vector<RunRow> members;  // its other parts, where it was on several machines
  RunSpec spec;
};

// Finds the run that `flags.like` names, and takes over those flags of its launch that say what of
// the work directory is sent. Returns usage errors; FAILED_PRECONDITION for a run of a gpuctl that
// did not record its launches.
absl::StatusOr<LikeRun> FindLikeRun(RunStore& store, LaunchFlags& flags);

// Parses what `row` was launched with. FAILED_PRECONDITION when there is nothing that can be read;
// the error begins with `doing` and the run's name.
absl::StatusOr<LaunchRecord> LaunchRecordOf(const RunRow& row, absl::string_view doing);

// Returns the machine of `row`, and those of its other parts `members`, when they are the user's
// own and the flags name no other place; else none.
std::vector<NodeTarget> OwnMachinesOf(const RunRow& row, const std::vector<RunRow>& members,
                                      const LaunchFlags& flags);

// Removes the cost limit of a rented machine from the spec of a run that goes to a machine of the
// user's own.
void DropForeignCostLimit(const LaunchFlags& flags, RunSpec& spec);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_PLAN_LIKE_RUN_H_
