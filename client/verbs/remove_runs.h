// Removes what finished runs left on their nodes, for rm and prune.
#ifndef GPUCTL_CLIENT_VERBS_REMOVE_RUNS_H_
#define GPUCTL_CLIENT_VERBS_REMOVE_RUNS_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/home/not_home.h"
#include "client/node/node_calls.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

struct RunRemoval {
  enum class Outcome {
    kKept,         // `why` gives the reason
    kGone,         // the node has nothing of it
    kWouldRemove,  // as JudgeRun found
    kRemoved,
  };
  RunRow row;
  Outcome outcome = Outcome::kKept;
  absl::Status why;  // of kKept; has a hint
  // Bytes that removing frees at once, and bytes of stored trees that stay until the node sweeps
  // them.
  int64_t freed_bytes = 0;
  int64_t shared_bytes = 0;
  Missing missing;  // also when `force` ignores it
  // With kKept: nobody could be asked who has what is left of it, and the run may be forgotten.
  bool unasked = false;
};

// Checks on the run's node that the run is over and all of it is on this laptop, and finds what
// removing would free. Brings the run's output to this laptop if it is not here. Removes nothing.
// `force` passes over what is missing here.
RunRemoval JudgeRun(CommandContext& context, RunStore& store, NodeCalls& calls, RunRow row,
                    bool force);

// Returns the checkpoints of a live run that are not on this laptop, and the files beside them.
absl::StatusOr<Missing> MissingSoFar(CommandContext& context, NodeCalls& calls, const RunRow& row);

// Removes a run that JudgeRun found removable.
void RemoveRun(NodeCalls& calls, RunRemoval& removal);

// Prints the results: a table, or JSON with the fields of `more` in the object where it is given.
// Names the kept runs on stderr, with a hint.
void PrintRemovals(CommandContext& context, const std::vector<RunRemoval>& removals, bool dry_run,
                   const nlohmann::ordered_json* more = nullptr);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_REMOVE_RUNS_H_
