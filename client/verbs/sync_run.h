// A run's live work directory brought up to date with the laptop's.
#ifndef GPUCTL_CLIENT_VERBS_SYNC_RUN_H_
#define GPUCTL_CLIENT_VERBS_SYNC_RUN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/runs/context.h"

namespace gpuctl {

struct SyncRunFlags {
  std::string reference;  // names the run
  std::string workdir;    // "": the one it was launched from
  std::vector<std::string> include;
  int streams = 0;
  bool yes = false;    // also when it is large
  bool watch = false;  // go on with every change until interrupted
};

// Sends what changed, keeps and names what the job changed itself. Returns the exit code.
absl::StatusOr<int> SyncRun(CommandContext& context, const SyncRunFlags& flags);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_SYNC_RUN_H_
