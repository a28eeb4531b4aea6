// Follows a run and shows it until it ends or the user detaches: the main loop of attach and
// launch.
#ifndef GPUCTL_CLIENT_SHOW_SHOW_RUN_H_
#define GPUCTL_CLIENT_SHOW_SHOW_RUN_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/link/link.h"
#include "client/results/checkpoint_watch.h"
#include "client/runs/context.h"
#include "client/show/run_view.h"
#include "client/streams/follower.h"

namespace gpuctl {

struct ShowRunOptions {
  // Set by launch: the request that starts the job.
  std::optional<StartRequest> start;
  // True to return as soon as the job runs (launch -d).
  bool until_running = false;
  // True to show the output from its beginning; else, on a terminal, the newest screenful.
  bool from_beginning = false;
  bool show_output = true;
  // True for logs -f: shows bytes only, from `begin`; Ctrl-C leaves at once and silently.
  bool plain = false;
  int64_t begin = 0;
  // Options for downloading new checkpoints meanwhile, through separate links.
  std::optional<CheckpointWatchOptions> pull;
  // Not null: becomes true when nothing more can come home by `pull`.
  bool* all_came = nullptr;
  // Not null, and plain: chooses what is shown. It outlives the call.
  OutputFilter* filter = nullptr;
};

// Shows the run. Returns the exit code: the job's (or its replacement), or 0 when the user
// detached. `links` may be null for a run whose end is recorded. Ctrl-C detaches and says how to
// return; a second one within 0.3 s asks whether the job shall stop. Before the node has accepted
// the job, Ctrl-C and errors return an error that says what still runs, if anything.
absl::StatusOr<int> ShowRun(CommandContext& context, RunStore& store, RunRow row,
                            LinkFactory* links, ShowRunOptions options);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SHOW_SHOW_RUN_H_
