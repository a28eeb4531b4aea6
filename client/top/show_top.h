// gpuctl top's loop: several runs live on one screen.
#ifndef GPUCTL_CLIENT_TOP_SHOW_TOP_H_
#define GPUCTL_CLIENT_TOP_SHOW_TOP_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// Shows the live runs, those that begin meanwhile and those that end, until q or Ctrl-C. All that
// comes is stored, as attach stores it. `waiting` returns lines on runs that wait in batches, again
// every few seconds. Needs a terminal that can animate. Returns the exit code.
absl::StatusOr<int> ShowTop(CommandContext& context, RunStore& store, Holdings& holdings,
                            const std::function<std::vector<std::string>()>& waiting);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TOP_SHOW_TOP_H_
