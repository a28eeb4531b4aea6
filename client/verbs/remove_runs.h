// Removing what runs that are over left on their nodes, for rm and prune.
#ifndef GPUCTL_CLIENT_VERBS_REMOVE_RUNS_H_
#define GPUCTL_CLIENT_VERBS_REMOVE_RUNS_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/node/node_calls.h"
#include "client/results/not_home.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

struct RunRemoval {
  enum class Outcome {
    kKept,         // `why` says what is against it
    kGone,         // nothing of it was there
    kWouldRemove,  // as JudgeRun found
    kRemoved,
  };
  RunRow row;
  Outcome outcome = Outcome::kKept;
  absl::Status why;  // with a hint; of kKept
  // What removing frees at once, and what stored trees keep until the node sweeps them.
  int64_t freed_bytes = 0;
  int64_t shared_bytes = 0;
  Missing missing;  // also where `force` passed over it
};

// Looks at a run on its node: whether it is over, whether all of it is at home (its output is
// brought home if it is not), what removing it would free. Nothing is removed.
RunRemoval JudgeRun(CommandContext& context, RunStore& store, NodeCalls& calls, RunRow row,
                    bool force);

// Removes a run that JudgeRun found removable.
void RemoveRun(NodeCalls& calls, RunRemoval& removal);

// Prints the results: a table, or JSON with `unknown` in the object where it is given. Those that
// were kept are named on stderr with what helps.
void PrintRemovals(CommandContext& context, const std::vector<RunRemoval>& removals, bool dry_run,
                   const nlohmann::ordered_json* unknown = nullptr);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_REMOVE_RUNS_H_
