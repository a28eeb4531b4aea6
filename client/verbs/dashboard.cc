// gpuctl dashboard: all runs on a page in the browser.
#include "client/base/exit_codes.h"
#include "client/dashboard/show_dashboard.h"
#include "client/market/holdings.h"
#include "client/terminal/console.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"

namespace gpuctl {

absl::StatusOr<int> CmdDashboard(CommandContext& context, std::vector<std::string> args) {
  DashboardOptions options;
  bool no_open = false;
  VerbParser parser(
      context, "dashboard [FLAGS]",
      "Shows all runs on a page in your browser: loss, learning rate, speed, GPU, cost,\n"
      "checkpoints and output, live, and several runs in one drawing.",
      "  gpuctl dashboard\n\n"
      "The page comes from this computer, for this computer alone. What comes is stored\n"
      "here, as attach stores it. It can stop and pull a run, and rents nothing.\n"
      "Ctrl-C ends the dashboard; the runs go on.");
  parser.Option("--port", options.port, "Port on 127.0.0.1 (default: a free one)").Range(1, 65535);
  parser.Switch("--no-open", no_open, "Only print the address, open no browser");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  options.open = !no_open;
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  Holdings holdings(context);
  return ShowDashboard(context, *store, holdings, options);
}

}  // namespace gpuctl
