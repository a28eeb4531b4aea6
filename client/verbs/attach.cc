// gpuctl attach: show a run live.
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/follow/catch_up.h"
#include "client/launch/after_run.h"
#include "client/market/holdings.h"
#include "client/market/price_rises.h"
#include "client/node/make_links.h"
#include "client/rent/node_terms.h"
#include "client/runs/context.h"
#include "client/runs/find_run.h"
#include "client/runs/run_store.h"
#include "client/show/show_run.h"
#include "client/terminal/console.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

// Time to bring what is missing of a run that has ended.
constexpr absl::Duration kAttachPatience = absl::Seconds(10);

}  // namespace

absl::StatusOr<int> CmdAttach(CommandContext& context, std::vector<std::string> args) {
  std::string reference;
  bool all = false;
  std::string pull;
  VerbParser parser(
      context, "attach [RUN] [FLAGS]",
      "Shows a run live: the newest screenful, then what comes. When the run ends, its\n"
      "exit code becomes gpuctl's.",
      "  gpuctl attach                  the newest live run\n"
      "  gpuctl attach amber-fox-3 > output.txt\n\n"
      "Ctrl-C detaches at once and leaves the run running; a second one right after it\n"
      "asks whether to stop the run. A pipe or file gets all of the output, byte for byte.");
  const FlagSet::Flag run = parser.Option("RUN", reference, kRunOrNewestLive);
  parser.Switch("-a,--all", all, "Show all output from its beginning, on a terminal too");
  parser.Switch("--pull", pull,
                "Bring new checkpoints to ./RUN meanwhile; --pull=N keeps the newest N");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  if (run.given()) {
    RETURN_IF_ERROR(CheckNoBatch(context, {reference},
                                 "gpuctl queue $ shows all of it, gpuctl attach $-1 one run"));
    RETURN_IF_ERROR(CheckStarted(context, {reference}));
  }
  ASSIGN_OR_RETURN(RunRow row, FindRun(context, *store, run, reference));
  if (row.end.has_value()) {
    absl::Status error;
    const absl::StatusOr<Caught> caught = CatchUp(context, *store, row, kAttachPatience, &error);
    if (absl::IsCancelled(caught.status())) return caught.status();
    if (!caught.ok() || *caught == Caught::kNot) {
      context.Say(absl::StrCat("what is here may not be all of it: ",
                               (caught.ok() ? error : caught.status()).message()));
    }
  }
  Holdings holdings(context);
  std::unique_ptr<LinkFactory> links;
  if (!row.end.has_value()) {
    ASSIGN_OR_RETURN(links, MakeLinks(context, row.target));
  }
  ShowRunOptions options;
  options.from_beginning = all;
  ASSIGN_OR_RETURN(options.pull, ParsePullFlag(pull, row.name));
  if (!row.end.has_value()) {
    TellStoredPriceRises(holdings, *store, row.run_id, context.NowMs(),
                         [&context](absl::string_view line) { context.Say(line); });
  }
  ASSIGN_OR_RETURN(const int code, ShowRun(context, *store, row, links.get(), std::move(options)));
  SettleTermsOf(context, holdings, row.run_id);
  const absl::StatusOr<RunRow> shown = store->Get(row.run_id);
  if (shown.ok()) TellWhatIsLeft(context, holdings, *store, *shown);
  return code;
}

}  // namespace gpuctl
