// gpuctl top: several runs live on one screen.
#include "client/base/exit_codes.h"
#include "client/market/holdings.h"
#include "client/terminal/console.h"
#include "client/top/show_top.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"

namespace gpuctl {

absl::StatusOr<int> CmdTop(CommandContext& context, std::vector<std::string> args) {
  VerbParser parser(
      context, "top [FLAGS]",
      "Shows all live runs on one screen: step, loss with its curve, speed, GPU, cost.",
      "  gpuctl top\n\n"
      "Runs that begin meanwhile come onto it, and those that end stay. What comes is\n"
      "stored here, as attach stores it. q or Ctrl-C leaves; the runs go on.");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  if (context.json() || !context.terminal.animation) {
    return UsageError("top draws on a terminal that can move its cursor",
                      "gpuctl ps -o json is for scripts, gpuctl ps for others");
  }
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  Holdings holdings(context);
  return ShowTop(context, *store, holdings);
}

}  // namespace gpuctl
