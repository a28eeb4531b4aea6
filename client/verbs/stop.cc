// gpuctl stop: end a run's job.
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/follow/run_outcome.h"
#include "client/follow/stop_run.h"
#include "client/launch/after_run.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"
#include "client/runs/find_run.h"
#include "client/runs/given_up.h"
#include "client/runs/run_status.h"
#include "client/terminal/console.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"

namespace gpuctl {

absl::StatusOr<int> CmdStop(CommandContext& context, std::vector<std::string> args) {
  std::vector<std::string> references;
  bool no_wait = false;
  VerbParser parser(
      context, "stop [RUN...] [FLAGS]",
      "Ends a run's job: SIGTERM, its grace to save a checkpoint, then SIGKILL. Waits\n"
      "until it has ended.",
      "  gpuctl stop amber-fox-3\n"
      "  gpuctl stop amber-fox-3 -o json\n\n"
      "To leave a run without ending it, press Ctrl-C in attach.");
  parser.Option("RUN", references, kRunOrNewestLive);
  parser.Switch("--no-wait", no_wait, "Return once the job was told");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  Holdings holdings(context);
  RETURN_IF_ERROR(CheckNoBatch(
      context, references, "gpuctl cancel --running $ ends all of it, gpuctl stop $-1 one run"));
  ASSIGN_OR_RETURN(std::vector<RunRow> rows, FindRuns(context, *store, references));
  std::vector<nlohmann::ordered_json> objects;
  for (RunRow& row : rows) {
    RETURN_IF_ERROR(StopRun(context, *store, row, !no_wait));
    RETURN_IF_ERROR(GiveUpIfTakenAway(paths.MirrorDir(row.run_id), row));
    ASSIGN_OR_RETURN(const RunStatus status, MirroredStatus(context, row));
    if (context.json()) {
      objects.push_back(RunToJson(row, status));
    } else {
      context.Say(absl::StrCat(row.name, " ",
                               row.end.has_value() ? DescribeEnd(*row.end) : "was told to stop"));
      TellWhatIsLeft(context, holdings, *store, row);
    }
  }
  if (context.json()) context.PrintJsonList("runs", objects);
  return kExitOk;
}

}  // namespace gpuctl
