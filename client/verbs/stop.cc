// gpuctl stop: end a run's job.
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/follow/members.h"
#include "client/follow/run_outcome.h"
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
namespace {

// Cancels what `references` name of batches and has no run, and leaves the other references there.
// A run that another gpuctl is starting is stopped when it has started; without `wait` that gpuctl
// does so. Returns how many there were.
absl::StatusOr<size_t> StopUnstarted(CommandContext& context, RunStore& store, bool wait,
                                     std::vector<std::string>& references,
                                     std::vector<nlohmann::ordered_json>& objects) {
  std::vector<std::string> others, names;
  for (const std::string& reference : references) {
    ASSIGN_OR_RETURN(const std::optional<Entry> entry, FindUnstarted(context, reference));
    if (!entry.has_value()) {
      // Nothing is cancelled when another name is wrong.
      RETURN_IF_ERROR(store.Get(reference).status());
    }
    (entry.has_value() ? names : others).push_back(reference);
  }
  references = std::move(others);
  if (names.empty()) return 0;
  ASSIGN_OR_RETURN(const std::unique_ptr<BatchStore> batches, OpenBatches(context));
  ASSIGN_OR_RETURN(const CancelledEntries done,
                   CancelEntries(context, store, *batches, names, /*running=*/true, wait));
  for (const EntryView& view : done.views) {
    objects.push_back(EntryToJson(view));
    if (context.json()) continue;
    if (view.run.has_value() && view.run->end.has_value()) {
      context.Say(absl::StrCat(view.run->name, " ", DescribeEnd(*view.run->end)));
    } else if (view.run.has_value() && view.run->accepted_ms > 0) {
      context.Say(absl::StrCat(view.run->name, " was told to stop"));
    } else if (view.phase == EntryPhase::kStarting) {
      context.Say(absl::StrCat(view.entry.name,
                               " is being started, and is stopped as soon as it has started"));
    } else {
      context.Say(DescribeUnstarted(view.entry));
    }
  }
  return names.size();
}

}  // namespace

absl::StatusOr<int> CmdStop(CommandContext& context, std::vector<std::string> args) {
  std::vector<std::string> references;
  bool no_wait = false;
  VerbParser parser(
      context, "stop [RUN...] [FLAGS]",
      "Ends a run's job: SIGTERM, its grace to save a checkpoint, then SIGKILL. Waits\n"
      "until it has ended. A run of a batch that waits is cancelled.",
      "  gpuctl stop amber-fox-3\n"
      "  gpuctl stop amber-fox-3 -o json\n\n"
      "To leave a run without ending it, press Ctrl-C in attach.");
  parser.Option("RUN", references, kRunOrNewestLive);
  parser.Switch("--no-wait", no_wait, "Return at once; the job is told, or is told as it starts");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  Holdings holdings(context);
  RETURN_IF_ERROR(CheckNoBatch(
      context, references, "gpuctl cancel --running $ ends all of it, gpuctl stop $-1 one run"));
  std::vector<nlohmann::ordered_json> objects, entries;
  ASSIGN_OR_RETURN(const size_t unstarted,
                   StopUnstarted(context, *store, !no_wait, references, entries));
  std::vector<RunRow> rows;
  if (unstarted == 0 || !references.empty()) {
    ASSIGN_OR_RETURN(rows, FindRuns(context, *store, references));
  }
  std::set<std::string> stopped;  // run ids
  absl::Status failed;
  for (RunRow& row : rows) {
    stopped.insert(row.run_id);
    const absl::Status stopping = StopWithMembers(context, *store, row, !no_wait);
    // Another machine of a run on several may have failed to answer.
    if (!stopping.ok() && (!row.end.has_value() || absl::IsCancelled(stopping))) return stopping;
    failed.Update(stopping);
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
  TellOfSchedules(context, stopped);
  RETURN_IF_ERROR(failed);
  if (!context.json()) return kExitOk;
  if (entries.empty() || context.format == OutputFormat::kJsonLines) {
    objects.insert(objects.end(), entries.begin(), entries.end());
    context.PrintJsonList("runs", objects);
  } else {
    context.PrintJson({{"runs", objects}, {"entries", entries}});
  }
  return kExitOk;
}

}  // namespace gpuctl
