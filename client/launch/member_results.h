// Brings home what the other machines of a run on several have.
#ifndef GPUCTL_CLIENT_LAUNCH_MEMBER_RESULTS_H_
#define GPUCTL_CLIENT_LAUNCH_MEMBER_RESULTS_H_

#include <string>

#include "absl/status/status.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

enum class MemberResults {
  kCheckpoint,  // the newest one
  kNamed,       // that, and the artifacts that the run names
  kAll          // the same, and where it named none, what the job made (PullRequest::undeclared)
};

// Brings these results of `member`, a part of a run that has ended, into a directory beside
// `place`:
// ./RUN.node1 beside ./RUN. Records its end in `member`, too.
absl::Status BringMemberResult(CommandContext& context, RunStore& store, RunRow& member,
                               const std::string& place, MemberResults which);

// Does so for all other parts of `run`. Goes on with the others after an error; returns the first
// one and says the others. OK for a run on one machine.
absl::Status BringMemberResults(CommandContext& context, RunStore& store, const RunRow& run,
                                const std::string& place, MemberResults which);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LAUNCH_MEMBER_RESULTS_H_
