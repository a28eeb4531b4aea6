// gpuctl queue: the batches and their entries; starts what may start.
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/base/exit_codes.h"
#include "client/dispatch/dispatch_pass.h"
#include "client/dispatch/due_schedules.h"
#include "client/dispatch/start_array.h"
#include "client/dispatch/start_entry.h"
#include "client/follow/output_hint.h"
#include "client/keep/keep_status.h"
#include "client/market/holdings.h"
#include "client/streams/mirror_reader.h"
#include "client/terminal/console.h"
#include "client/terminal/line_assembler.h"
#include "client/terminal/panel_terminal.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/newest_numbers.h"
#include "client/verbs/queue_results.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kAskFor = absl::Seconds(3);
constexpr int kPatienceS = 20;
// A pass tells of so many entries that it started or gave up.
constexpr size_t kMostTold = 100;

struct QueueFlags {
  std::vector<std::string> batches;
  bool all = false, offline = false, results = false, quiet = false;
  ResultFlags result;
  // Of gpuctl's own calls.
  StartOrder start;
  std::string start_array;
  bool pass = false;
  int patience_s = kPatienceS;
};

absl::StatusOr<bool> ReadFlags(CommandContext& context, const std::vector<std::string>& args,
                               QueueFlags& flags) {
  VerbParser parser(
      context, "queue [BATCH...] [FLAGS]",
      "Lists the batches, or the runs of some, and why those wait that wait. Asks the\n"
      "machines first, and starts what can start now: for a batch that rents, this may\n"
      "rent, and says so. --offline starts nothing.",
      "  gpuctl queue\n"
      "  gpuctl queue sweep\n"
      "  gpuctl queue sweep --results --metric eval_loss");
  parser.Option("BATCH", flags.batches, "Name of a batch");
  parser.Switch("-a,--all", flags.all, "Also batches that are over");
  parser.Switch("--offline", flags.offline, "Ask no machine, and start nothing");
  parser.Switch("--results", flags.results, "One row a run: parameters, metric, cost");
  parser.Option("--metric", flags.result.metric, "With --results: which (default loss)");
  parser.Option("--goal", flags.result.goal,
                "min or max: which values of it are best (default: as its name says)");
  parser.Switch("--csv", flags.result.csv, "With --results: print CSV");
  parser.Quiet(flags.quiet, "the names");
  parser.Option("--start-entry", flags.start.entry_id, "").Hidden();
  parser.Option("--on", flags.start.host, "").Hidden();
  parser.Option("--join", flags.start.join, "").Hidden();
  parser.Option("--behind", flags.start.behind, "").Hidden();
  parser.Option("--pays-after", flags.start.pays_after, "").Hidden();
  parser.Option("--task", flags.start.task, "").Hidden();
  parser.Option("--start-array", flags.start_array, "").Hidden();
  parser.Switch("--pass", flags.pass, "").Hidden();
  parser.Option("--patience", flags.patience_s, "").Range(0, 86'400).Hidden();
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return false;
  if (flags.results && flags.batches.empty()) {
    return UsageError("--results needs a batch", "gpuctl queue lists them");
  }
  return true;
}

// Returns the states of all entries of open batches, by id.
absl::StatusOr<std::map<std::string, EntryView>> OpenEntries(RunStore& runs, BatchStore& batches) {
  ASSIGN_OR_RETURN(const std::vector<BatchView> views,
                   ReadBatches(runs, batches, {}, /*open_only=*/true));
  std::map<std::string, EntryView> entries;
  for (const BatchView& view : views) {
    for (const EntryView& entry : view.entries) entries.emplace(entry.entry.entry_id, entry);
  }
  return entries;
}

// Returns what a pass did, as JSON: entries that waited before and do not any more.
absl::StatusOr<nlohmann::ordered_json> PassJson(Holdings& holdings, RunStore& runs,
                                                BatchStore& batches,
                                                const std::map<std::string, EntryView>& before) {
  nlohmann::ordered_json started = nlohmann::ordered_json::array(),
                         failed = nlohmann::ordered_json::array();
  for (const auto& [id, was] : before) {
    if (was.phase != EntryPhase::kWaiting) continue;
    ASSIGN_OR_RETURN(std::optional<Entry> entry, batches.FindEntry(id));
    if (!entry.has_value()) continue;
    const absl::StatusOr<RunRow> run = runs.Get(entry->run_id);
    const EntryView now =
        ViewOf(*std::move(entry), run.ok() ? std::optional<RunRow>(*run) : std::nullopt);
    if (now.entry.state == EntryState::kStarted && now.run.has_value()) {
      if (started.size() < kMostTold) {
        const absl::StatusOr<std::optional<Lease>> lease = holdings.LeaseOf(now.run->run_id);
        nlohmann::ordered_json price;
        if (lease.ok() && lease->has_value()) price = (*lease)->usd_per_hour();
        started.push_back(
            {{"entry", now.entry.name}, {"node", now.run->target.name}, {"usd_per_hour", price}});
      }
    } else if (now.over() && failed.size() < kMostTold) {
      failed.push_back({{"entry", now.entry.name}, {"why", now.why}});
    }
  }
  return nlohmann::ordered_json{{"started", started}, {"failed", failed}};
}

absl::StatusOr<std::vector<BatchView>> FindViews(RunStore& runs, BatchStore& batches,
                                                 const QueueFlags& flags) {
  for (const std::string& name : flags.batches) RETURN_IF_ERROR(batches.Get(name).status());
  return ReadBatches(runs, batches, flags.batches, flags.batches.empty() && !flags.all);
}

absl::Status Print(CommandContext& context, Holdings& holdings, RunStore& runs, BatchStore& batches,
                   const QueueFlags& flags, const std::vector<BatchView>& views) {
  std::vector<BatchMoney> money;
  std::vector<nlohmann::ordered_json> objects;
  for (const BatchView& view : views) {
    ASSIGN_OR_RETURN(money.emplace_back(), MoneyOfBatch(context, holdings, batches, view.batch));
    nlohmann::ordered_json& json = objects.emplace_back(BatchToJson(view, money.back()));
    if (flags.batches.empty()) continue;
    json["entries"] = nlohmann::ordered_json::array();
    for (const EntryView& entry : view.entries) json["entries"].push_back(EntryToJson(entry));
  }
  if (flags.quiet) {
    for (const BatchView& view : views) {
      if (flags.batches.empty()) context.PrintLine(view.batch.name);
      if (flags.batches.empty()) continue;
      for (const EntryView& entry : view.entries) context.PrintLine(entry.entry.name);
    }
  } else if (context.json()) {
    context.PrintJsonList("batches", objects);
  } else if (flags.batches.empty()) {
    PrintTableFor(context, BatchTable(context, views, money),
                  {"CANCELLED", "AT ONCE", "AGE", "CAP", "FAILED", "DONE"});
    if (views.empty()) {
      context.Hint(flags.all ? "gpuctl submit --sweep lr=1e-4,2e-4 -- COMMAND submits one"
                             : "no batch is open; gpuctl queue -a lists those that are over");
    }
  } else {
    for (const BatchView& view : views) {
      PrintTableFor(context, EntryTable(view), {"LOSS", "STEP", "ON"});
      if (view.schedule.has_value()) {
        context.Say(absl::StrCat(view.batch.name, ": ", DescribeSchedule(*view.schedule)));
      }
      TellOfGivingUp(context, view);
      TellOfOtherContent(context, view);
      if (view.over()) TellWhatBatchBills(context, holdings, runs, batches, view.batch);
    }
  }
  return absl::OkStatus();
}

// Fills in why the waiting entries wait.
absl::Status AddReasons(CommandContext& context, Holdings& holdings, RunStore& runs,
                        BatchStore& batches, std::vector<BatchView>& views) {
  ASSIGN_OR_RETURN(const auto why, WhyTheyWait(context, holdings, runs, batches));
  for (BatchView& view : views) {
    for (EntryView& entry : view.entries) {
      const auto found = why.find(entry.entry.entry_id);
      if (entry.phase != EntryPhase::kWaiting) continue;
      entry.why = found != why.end() ? found->second
                                     : "it may start now: gpuctl queue starts it, and so does keep";
    }
  }
  return absl::OkStatus();
}

// Fills in the newest step and loss of the runs that are live.
void AddNumbers(CommandContext& context, std::vector<BatchView>& views) {
  const absl::StatusOr<ClientPaths> paths = context.Paths();
  if (!paths.ok()) return;
  for (BatchView& view : views) {
    for (EntryView& entry : view.entries) {
      if (entry.phase != EntryPhase::kRunning || entry.run->end.has_value()) continue;
      (void)ReadNewestNumbers(MirrorPaths(paths->MirrorDir(entry.run->run_id)), *entry.run);
    }
  }
}

// Adds what a failed run's output ends with to why it failed.
void AddLastLines(CommandContext& context, std::vector<BatchView>& views) {
  constexpr int kMostColumns = 120;
  const absl::StatusOr<ClientPaths> paths = context.Paths();
  if (!paths.ok()) return;
  for (BatchView& view : views) {
    for (EntryView& entry : view.entries) {
      const bool failed = entry.phase == EntryPhase::kFailed && entry.run.has_value() &&
                          entry.run->end.has_value() && entry.run->end->source == EndSource::kJob;
      if (!failed) continue;
      MirrorReader mirror(paths->MirrorDir(entry.run->run_id), entry.run->output_segment_bytes);
      const std::string last = TruncateToWidth(LastLineOfOutput(mirror), kMostColumns);
      if (!last.empty()) absl::StrAppend(&entry.why, entry.why.empty() ? "" : ": ", last);
    }
  }
}

// Says that what waits, or comes at its times, is started by nobody unless the user is here.
void TellIfNobodyKeeps(CommandContext& context, const std::vector<BatchView>& views) {
  const absl::StatusOr<ClientPaths> paths = context.Paths();
  if (!paths.ok() || PathExists(JoinPath(paths->state_dir, kKeepInstalledFile))) return;
  for (const BatchView& view : views) {
    const bool waits =
        std::any_of(view.entries.begin(), view.entries.end(),
                    [](const EntryView& entry) { return entry.phase == EntryPhase::kWaiting; });
    const bool comes = view.schedule.has_value() && !view.schedule->ended;
    if (!waits && !comes) continue;
    context.Hint(
        "gpuctl keep --install lets this computer start by itself what waits or comes at its time");
    return;
  }
}

}  // namespace

absl::StatusOr<int> CmdQueue(CommandContext& context, std::vector<std::string> args) {
  QueueFlags flags;
  ASSIGN_OR_RETURN(const bool go_on, ReadFlags(context, args, flags));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(RunStore * runs, context.Store());
  ASSIGN_OR_RETURN(const std::unique_ptr<BatchStore> batches, OpenBatches(context));
  Holdings holdings(context);
  if (!flags.start_array.empty()) {
    const std::vector<std::string> entry_ids = absl::StrSplit(flags.start_array, ',');
    RETURN_IF_ERROR(StartArray(context, holdings, *batches, entry_ids));
    return kExitOk;
  }
  if (!flags.start.entry_id.empty()) {
    RETURN_IF_ERROR(StartEntry(context, holdings, *runs, *batches, flags.start));
    return kExitOk;
  }
  RETURN_IF_ERROR(FindViews(*runs, *batches, flags).status());
  bool stuck = false;
  std::map<std::string, EntryView> before;
  if (!flags.offline) {
    if (flags.pass) {
      RETURN_IF_ERROR(MakeDueEntries(context, *batches));
      ASSIGN_OR_RETURN(before, OpenEntries(*runs, *batches));
    }
    const InterruptWord while_asking(context.json() ? "" : "interrupted; nothing was started");
    absl::StatusOr<bool> asked = AskMachines(context, *runs, *batches, kAskFor, !flags.pass);
    if (absl::IsCancelled(asked.status())) {
      return WithExitCode(absl::CancelledError("interrupted; nothing was started"),
                          kExitInterrupted);
    }
    ASSIGN_OR_RETURN(stuck, std::move(asked));
    const InterruptWord while_starting(
        context.json() ? ""
                       : "interrupted; what is being started goes on, and gpuctl queue shows it");
    RETURN_IF_ERROR(
        StartEntries(context, holdings, *runs, *batches, absl::Seconds(flags.patience_s)));
  }
  if (flags.pass) {
    ASSIGN_OR_RETURN(const nlohmann::ordered_json json,
                     PassJson(holdings, *runs, *batches, before));
    context.PrintJson(json);
  } else {
    ASSIGN_OR_RETURN(std::vector<BatchView> views, FindViews(*runs, *batches, flags));
    MarkQueued(context, views);
    RETURN_IF_ERROR(AddReasons(context, holdings, *runs, *batches, views));
    if (!flags.batches.empty()) {
      AddNumbers(context, views);
      AddLastLines(context, views);
      MarkOtherContent(*runs, views);
    }
    TellIfNobodyKeeps(context, views);
    if (flags.results) TellOfOpenEntries(context, views);
    RETURN_IF_ERROR(flags.results ? PrintResults(context, holdings, *batches, flags.result, views)
                                  : Print(context, holdings, *runs, *batches, flags, views));
  }
  if (stuck) ExitAtOnce(context, kExitOk);
  return kExitOk;
}

}  // namespace gpuctl
