// gpuctl resume: start a run again from its newest checkpoint on this laptop.
#include <unistd.h>

#include <optional>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/follow/catch_up.h"
#include "client/keep/keep_status.h"
#include "client/launch/launch_run.h"
#include "client/market/holdings.h"
#include "client/plan/launch_flags.h"
#include "client/plan/launch_plan.h"
#include "client/plan/plan_text.h"
#include "client/plan/resume_plan.h"
#include "client/results/checkpoint_watch.h"
#include "client/runs/context.h"
#include "client/runs/run_status.h"
#include "client/terminal/console.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/unused_idle.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kResumePatience = absl::Seconds(20);

// Checks that the run is over: two of it would write the same things.
absl::Status CheckIsOver(CommandContext& context, RunStore& store, RunRow& row) {
  absl::Status error;
  ASSIGN_OR_RETURN(const Caught caught, CatchUp(context, store, row, kResumePatience, &error));
  if (caught == Caught::kOver || row.end.has_value()) return absl::OkStatus();
  if (caught == Caught::kUp) {
    return WithHint(absl::FailedPreconditionError(
                        absl::StrCat("resume ", row.name, ": it runs on ", row.target.name)),
                    absl::StrCat("gpuctl attach ", row.name, " shows it, gpuctl stop ends it"));
  }
  return WithExitCode(
      WithHint(absl::UnavailableError(absl::StrCat("resume ", row.name,
                                                   ": it is not known whether it "
                                                   "still runs on ",
                                                   row.target.name, ": ", error.message())),
               absl::StrCat("gpuctl down ", row.name, " gives its machine up")),
      kExitUnreachable);
}

// Checks that no machine is rented for a run that has done its work already.
absl::Status CheckIsOfUse(const RunRow& row, const LaunchFlags& flags, bool from,
                          const LaunchPlan& plan) {
  const bool succeeded =
      row.end.has_value() && row.end->exit_code == 0 && row.end->cause == EndCause::kNone;
  if (!plan.rents || !succeeded || flags.anew || from) return absl::OkStatus();
  return WithHint(absl::FailedPreconditionError(absl::StrCat(
                      "resume ", row.name, ": it succeeded, and this would rent a machine again")),
                  absl::StrCat("gpuctl pull ", row.name,
                               " brings its results; --anew, or --from PATH, runs it again all the "
                               "same"));
}

}  // namespace

absl::StatusOr<int> CmdResume(CommandContext& context, std::vector<std::string> args) {
  std::string reference;
  LaunchFlags flags;
  VerbParser parser(
      context, "resume RUN [FLAGS]",
      "Starts a run that ended again, as a new run, from its newest checkpoint at home,\n"
      "and shows it.",
      "The checkpoint is sent along to .gpuctl-resume in the work directory, and\n"
      "GPUCTL_RESUME_FROM names it. The work directory is sent as it is now. The machine\n"
      "is chosen as launch does: one of the user's own is used again.\n\n"
      "  gpuctl resume fair-crow-39\n"
      "  gpuctl resume fair-crow-39 --provider vast --gpu H100\n"
      "  gpuctl resume fair-crow-39 --from fair-crow-39/outputs/checkpoint-200");
  parser.Option("RUN", reference, "Name, id, or the beginning of one").Required();
  AddResumeFlags(parser, flags);
  parser.Quiet("Print the new run's name alone, and not the job's output");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  RETURN_IF_ERROR(CheckHostFlags(flags));
  RETURN_IF_ERROR(SetPullDirectory(flags));
  RETURN_IF_ERROR(ParsePullFlag(flags.pull, "").status());
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  flags.kept = IsKept(paths.state_dir);
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  RETURN_IF_ERROR(CheckNoBatch(context, {reference},
                               "gpuctl resume $-1 starts one run again, gpuctl queue $ shows "
                               "which did not succeed"));
  ASSIGN_OR_RETURN(RunRow row, store->Get(reference));
  // A part of a run on several machines goes on with all of it.
  if (!row.leader.empty()) {
    ASSIGN_OR_RETURN(row, store->Get(row.leader));
  }
  RETURN_IF_ERROR(CheckIsOver(context, *store, row));
  Holdings holdings(context);
  const bool from = !flags.from.empty();  // PlanResume takes it out
  ASSIGN_OR_RETURN(ResumePlan resume,
                   PlanResume(context, holdings, *store, flags, row, /*agreed=*/std::nullopt));
  RETURN_IF_ERROR(CheckIsOfUse(row, flags, from, resume.plan));
  RETURN_IF_ERROR(AddUnusedIdle(context, holdings, *store, flags.yes, resume.plan));
  if (flags.dry_run) {
    RETURN_IF_ERROR(CheckOwnMachines(context, resume.plan));
    if (context.json()) {
      context.PrintJson({{"plan", PlanToJson(resume.plan)}});
    } else {
      context.PrintLines(PlanText(resume.plan, ColumnsFor(context, STDOUT_FILENO)));
    }
    return kExitOk;
  }
  // Whoever is asked sees it in the plan.
  if (const std::string results = ResultsText(resume.plan);
      !results.empty() && (flags.yes || !resume.plan.rents)) {
    context.Note(results, Tone::kWarning);
  }
  return LaunchRun(context, holdings, *store, std::move(flags), std::move(resume.plan),
                   std::move(resume.resuming));
}

}  // namespace gpuctl
