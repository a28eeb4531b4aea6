// gpuctl top: several runs live on one screen.
#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/market/holdings.h"
#include "client/terminal/console.h"
#include "client/top/show_top.h"
#include "client/verbs/batch_text.h"
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
      "stored here, as attach stores it. q or Ctrl-C leaves, and\nthe runs go on; ? tells what the "
      "keys and columns are.");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  if (context.json() || !context.terminal.animation) {
    return UsageError("top draws on a terminal that can move its cursor",
                      "gpuctl ps -o json is for scripts, gpuctl ps for others");
  }
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  Holdings holdings(context);
  ASSIGN_OR_RETURN(const std::unique_ptr<BatchStore> batches, OpenBatches(context));
  const auto waiting = [&batches] {
    std::vector<std::string> lines;
    // What cannot be read is not told.
    for (const auto& [name, count] :
         batches->Waiting().value_or(std::map<std::string, int64_t>())) {
      lines.push_back(
          absl::StrCat(count, count == 1 ? " run of " : " runs of ", name,
                       count == 1 ? " waits; gpuctl wait --batch " : " wait; gpuctl wait --batch ",
                       name, " goes on with it"));
    }
    return lines;
  };
  return ShowTop(context, *store, holdings, waiting);
}

}  // namespace gpuctl
