// What gpuctl keep does for the runs in one pass.
#ifndef GPUCTL_CLIENT_KEEP_KEEP_PASS_H_
#define GPUCTL_CLIENT_KEEP_KEEP_PASS_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/base/run_program.h"
#include "client/keep/keep_log.h"
#include "client/keep/keep_plan.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"

namespace gpuctl {

// Runs gpuctl with these arguments and --json; returns its end and stdout. A process of its own
// keeps a run that hangs, or a crash, from the other runs, and can be killed.
using GpuctlRunner = std::function<absl::StatusOr<ProgramEnd>(const std::vector<std::string>& args,
                                                              absl::Duration limit)>;
// The runner that uses this program.
GpuctlRunner RunsThisProgram();

// Gathers what is known of the runs that keep may act for.
absl::StatusOr<std::vector<KeptRun>> FindKeptRuns(Holdings& holdings, RunStore& store,
                                                  const KeepLog& log);

// Asks the nodes about live runs, then does what is due for each run, and writes each deed and each
// failure into the log and on stderr. With `dry_run` only says it. Returns the first failure.
absl::Status KeepRuns(CommandContext& context, Holdings& holdings, RunStore& store, KeepLog& log,
                      const GpuctlRunner& gpuctl, bool dry_run);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_KEEP_KEEP_PASS_H_
