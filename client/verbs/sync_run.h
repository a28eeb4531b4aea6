// Updates a run's live work directory from the laptop's.
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
  bool yes = false;       // send also a large work directory
  bool watch = false;     // sync every change until interrupted
  bool checksum = false;  // read every file at first, as if nothing were known of it
};

// Sends what changed. Keeps files that the job changed itself, and names them. Returns the exit
// code.
absl::StatusOr<int> SyncRun(CommandContext& context, const SyncRunFlags& flags);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_SYNC_RUN_H_
