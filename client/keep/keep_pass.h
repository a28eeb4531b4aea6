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
// The runner that uses this program. When `signal_fd` becomes readable, it passes SIGTERM on to the
// command and waits for its orderly end.
GpuctlRunner RunsThisProgram(int signal_fd = -1);

// Gathers what is known of the runs that keep may act for: those that live, or ended in the last 60
// days. Leaves out those whose machine belongs to another owner: a ledger that was copied has them,
// too, and its original acts for them.
absl::StatusOr<std::vector<KeptRun>> FindKeptRuns(CommandContext& context, Holdings& holdings,
                                                  RunStore& store, const KeepLog& log);

// What came of the runs in one pass.
struct KeptDeeds {
  struct Line {
    std::string verb, run, text;
  };
  std::vector<Line> deeds, failures;  // each is in the log and on stderr already
};

// Asks the nodes about live runs, then does what is due for each run, and writes each deed and each
// failure into the log and on stderr. With `dry_run` only says it. Returns errors of reading what
// there is to do. Stops between two commands when `cancelled` says so.
absl::StatusOr<KeptDeeds> KeepRuns(CommandContext& context, Holdings& holdings, RunStore& store,
                                   KeepLog& log, const GpuctlRunner& gpuctl, bool dry_run,
                                   const std::function<bool()>& cancelled = nullptr);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_KEEP_KEEP_PASS_H_
