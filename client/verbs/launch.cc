// gpuctl launch: start a run and show it.
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/keep/keep_status.h"
#include "client/launch/launch_run.h"
#include "client/market/holdings.h"
#include "client/plan/launch_flags.h"
#include "client/plan/launch_plan.h"
#include "client/plan/like_run.h"
#include "client/plan/plan_text.h"
#include "client/rent/join_machine.h"
#include "client/show/show_run.h"
#include "client/terminal/console.h"
#include "client/terminal/shown_name.h"
#include "client/verbs/unused_idle.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

// True when the machine of the plan may have GPUs. This computer is not asked about them here, but
// a driver that it has is seen.
bool MayHaveGpus(const LaunchPlan& plan, const LaunchFlags& flags) {
  return plan.own_machine.provider != "local" || !flags.on.empty() || PathExists("/dev/nvidiactl");
}

// Says that the run shares the GPUs of its machine with runs that are live there. One with --gpus
// does not, because it gets GPUs of its own.
absl::Status TellOfOthersThere(CommandContext& context, RunStore& store, const LaunchPlan& plan,
                               const LaunchFlags& flags) {
  if (plan.rents || plan.spec.gpus.has_value() || !MayHaveGpus(plan, flags)) {
    return absl::OkStatus();
  }
  std::vector<std::string> others;
  ASSIGN_OR_RETURN(const std::vector<RunRow> live, store.List(/*live_only=*/true));
  for (const RunRow& row : live) {
    if (row.target.name == plan.own_machine.name) others.push_back(row.name);
  }
  if (others.empty()) return absl::OkStatus();
  context.Say(absl::StrCat(FirstFew(others), others.size() == 1 ? " is" : " are", " live on ",
                           plan.own_machine.name, ", too, and this run shares all GPUs there with ",
                           others.size() == 1 ? "it" : "them"));
  context.Hint("with --gpus 1 each run gets a GPU of its own, or waits there until one is free");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> CmdLaunch(CommandContext& context, std::vector<std::string> args) {
  LaunchFlags flags;
  VerbParser parser(
      context, "launch [RUN.yaml] [FLAGS] [-- CMD...]",
      "Starts a run and shows it until it ends; its exit code becomes gpuctl's.",
      "The work directory is sent without .git, what .gitignore and .gpuctlignore leave\n"
      "out, and files that look like secrets (gpuctl sync --dry-run lists the rest); what\n"
      "the machine has already is not sent again. Ctrl-C leaves the run running. Without\n"
      "--max-price nothing is rented that costs over a quarter more than the plan shows.\n\n"
      "  gpuctl launch -- python train.py\n"
      "  gpuctl launch run.yaml --host ada@gpu.example -d\n"
      "  gpuctl launch --gpu H100 --secret HF_TOKEN --time 6h -- ./train.sh\n"
      "  gpuctl launch --like amber-fox-3 -e LR=3e-4\n"
      "  gpuctl launch --on amber-fox-3 --gpus 2 -- python eval.py");
  AddLaunchFlags(parser, flags);
  parser.Quiet("Print the run's name alone, and not the job's output");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  RETURN_IF_ERROR(SetPullDirectory(flags));
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  flags.kept = IsKept(paths.state_dir);
  if (flags.detach && flags.down && !flags.kept) {
    return UsageError(
        "after -d gpuctl keep does what --down says, and it is not installed on this computer",
        "gpuctl keep --install, then the same command; or gpuctl down RUN later");
  }
  if (flags.keep && flags.down) {
    return UsageError("--keep holds the machine that --down gives back", "gpuctl launch --help");
  }
  RETURN_IF_ERROR(ParsePullFlag(flags.pull, "").status());
  RETURN_IF_ERROR(CheckOnFlags(flags));
  RETURN_IF_ERROR(CheckHostFlags(flags));
  Holdings holdings(context);
  std::optional<LikeRun> like;
  if (!flags.like.empty()) {
    ASSIGN_OR_RETURN(RunStore * store, context.Store());
    ASSIGN_OR_RETURN(like, FindLikeRun(*store, flags));
  }
  std::optional<NamedMachine> on;
  if (!flags.on.empty()) {
    ASSIGN_OR_RETURN(RunStore * store, context.Store());
    ASSIGN_OR_RETURN(on, FindMachineOf(context, holdings, *store, flags.on));
  }
  ASSIGN_OR_RETURN(LaunchPlan plan,
                   MakeLaunchPlan(context, holdings, flags, like.has_value() ? &*like : nullptr,
                                  on.has_value() ? &*on : nullptr));
  if (!plan.spec.every.empty()) {
    return UsageError("every: starts a run again and again, and launch starts it once, now",
                      "gpuctl submit takes it; or take every: out of the run file");
  }
  if (!plan.spec.after.empty()) {
    return UsageError("after: waits for other runs, and launch starts at once",
                      "gpuctl submit waits; or take after: out of the run file");
  }
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  AddLastTime(holdings, *store, context.NowMs(), plan);
  RETURN_IF_ERROR(AddUnusedIdle(context, holdings, *store, flags.yes, plan));
  RETURN_IF_ERROR(TellOfOthersThere(context, *store, plan, flags));
  if (flags.dry_run) {
    RETURN_IF_ERROR(CheckOwnMachines(context, plan));
    if (context.json()) {
      context.PrintJson({{"plan", PlanToJson(plan)}});
    } else {
      context.PrintLines(PlanText(plan, ColumnsFor(context, STDOUT_FILENO)));
    }
    return kExitOk;
  }
  // Whoever is asked sees it in the plan.
  if (const std::string results = ResultsText(plan);
      !results.empty() && (flags.yes || !plan.rents)) {
    context.Note(results, Tone::kWarning);
  }
  if (const std::string ignored = IgnoredText(plan);
      !ignored.empty() && (flags.yes || !plan.rents)) {
    context.Note(ignored, Tone::kWarning);
  }
  return LaunchRun(context, holdings, *store, std::move(flags), std::move(plan));
}

}  // namespace gpuctl
