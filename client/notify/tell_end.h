// Tells the user of the end of a run, once, whichever gpuctl notices it first.
#ifndef GPUCTL_CLIENT_NOTIFY_TELL_END_H_
#define GPUCTL_CLIENT_NOTIFY_TELL_END_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// Notes that the end of a run that is launched now is to be told.
void ExpectEnd(CommandContext& context, const std::string& run_id);

// One end that was told, or was to be told.
struct ToldEnd {
  std::string name;     // of the run
  std::string by;       // "desktop, webhook"; empty: by nothing
  absl::Status status;  // what went wrong; what was told all the same is in `by`
  bool again = false;   // true when a later gpuctl tries again
};

// Tells the end of the run, if it has one that was not told: as its run file says, else as the
// user's configuration says. Waits for at most a minute. What fails is said on stderr, and tried
// again by a later gpuctl.
void TellEnd(CommandContext& context, Holdings& holdings, RunStore& store,
             const std::string& run_id);

// Does so for all runs of the last week. Stops between two when `cancelled` says so.
std::vector<ToldEnd> TellAllEnds(CommandContext& context, Holdings& holdings, RunStore& store,
                                 const std::function<bool()>& cancelled);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_NOTIFY_TELL_END_H_
