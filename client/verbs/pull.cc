// gpuctl pull: bring checkpoints and files home, verified.
#include <algorithm>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/base/wake_pipe.h"
#include "client/dispatch/dispatch_pass.h"
#include "client/follow/catch_up.h"
#include "client/follow/members.h"
#include "client/home/other_parts.h"
#include "client/market/holdings.h"
#include "client/node/listing.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/results/checkpoint_choice.h"
#include "client/results/checkpoint_watch.h"
#include "client/results/pull_results.h"
#include "client/runs/context.h"
#include "client/runs/find_run.h"
#include "client/runs/pulled_record.h"
#include "client/streams/mirror_reader.h"
#include "client/terminal/console.h"
#include "client/terminal/panel_terminal.h"
#include "client/terminal/safe_text.h"
#include "client/terminal/shown_name.h"
#include "client/transfer/transfer_interrupt.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/ps_money.h"
#include "client/verbs/queue_results.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "client/words/result_patterns.h"
#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/process/signal_pipe.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kPullPatience = absl::Seconds(10);

struct PullFlags {
  std::vector<std::string> arguments;  // runs, then patterns
  std::string keep, batch, best;
  ResultFlags result;  // which run of `best`
  PullRequest request;
  bool watch = false;
  bool list = false;
  int node = 0;  // a rank, where it is given
};

void TakeBrought(CommandContext& context, const CheckpointWatch::News& news, PullResults& pulled) {
  for (const std::string& notice : news.notices) {
    context.Say(notice);
  }
  for (const CheckpointWatch::Brought& each : news.brought) {
    pulled.bytes += each.bytes;
    pulled.checkpoints.push_back(
        {{"step", each.step < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(each.step)},
         {"kind", each.foreign ? "foreign" : "trainer"},
         {"path", each.path},
         {"bytes", each.bytes},
         {"already_here", false},
         {"verified", true}});
  }
}

nlohmann::ordered_json ToJson(const RunRow& row, const PullRequest& request,
                              const PullResults& pulled) {
  return {{"run_id", row.run_id},
          {"name", row.name},
          {"to", request.to},
          {"bytes", pulled.bytes},
          {"checkpoints", pulled.checkpoints},
          {"files", pulled.files}};
}

// Shows the watch's news until it is done, or until Ctrl-C.
absl::Status AwaitLastLook(CommandContext& context, CheckpointWatch& watch, PullResults& pulled) {
  ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGINT, SIGTERM, SIGHUP}));
  while (true) {
    const CheckpointWatch::News news = watch.Take();
    TakeBrought(context, news, pulled);
    if (news.done) return news.missed;
    WaitForNews({watch.wake_fd()}, signals, absl::InfiniteDuration());
    if (signals.Take().empty()) continue;
    const absl::Status interrupted =
        WithExitCode(absl::CancelledError("interrupted"), kExitInterrupted);
    if (!watch.Cancel(absl::Milliseconds(300))) ExitAtOnce(context, interrupted);
    return interrupted;
  }
}

// Brings every new checkpoint until the run has ended.
absl::Status WatchPull(CommandContext& context, RunStore& store, RunRow& row,
                       const PullFlags& flags, int keep, PullResults& pulled) {
  ASSIGN_OR_RETURN(std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  CheckpointWatchOptions options;
  options.to = flags.request.to;
  options.own_directory = flags.request.own_directory;
  options.keep = keep;
  options.streams = flags.request.streams;
  if (!flags.request.own_directory) RETURN_IF_ERROR(MakeDirectories(flags.request.to, 0777));
  CheckpointWatch watch(context, row, std::move(links), std::move(options));
  RETURN_IF_ERROR(watch.Start());
  absl::Status followed;
  if (!row.end.has_value()) {
    ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> follow, MakeLinks(context, row.target));
    followed = FollowQuietly(context, store, row, *follow, absl::InfiniteDuration(),
                             absl::InfiniteDuration(), [&] {
                               TakeBrought(context, watch.Take(), pulled);
                               return false;
                             });
  }
  if (!followed.ok() && !row.end.has_value()) {
    if (!watch.Cancel(absl::Milliseconds(300))) ExitAtOnce(context, followed);
    return followed;
  }
  watch.RunIsOver();
  return AwaitLastLook(context, watch, pulled);
}

// Returns the command that brings the same of one run.
std::string CommandFor(const RunRow& row, const PullRequest& request) {
  std::string command = absl::StrCat("gpuctl pull ", row.name);
  for (const std::string& pattern : request.patterns) {
    absl::StrAppend(&command, " ", TypedName(pattern, "PATTERN"));
  }
  return absl::StrCat(command, request.own_directory ? "" : " --to DIR");
}

// Returns the directories here that have results of the run.
std::vector<std::string> PlacesOf(CommandContext& context, const RunRow& row) {
  std::vector<std::string> places;
  const absl::StatusOr<ClientPaths> paths = context.Paths();
  if (!paths.ok()) return places;
  const auto items = PulledRecord(paths->MirrorDir(row.run_id)).Read();
  if (!items.ok()) return places;
  for (const PulledItem& item : *items) {
    if (!PathExists(item.path)) continue;
    const bool around = item.kind == PulledItem::Kind::kFiles && IsDirectory(item.path);
    std::string place = around ? item.path : DirName(item.path);
    if (std::find(places.begin(), places.end(), place) == places.end()) {
      places.push_back(std::move(place));
    }
  }
  return places;
}

// Adds to the error of a machine that was given back where the results are that came before.
absl::Status WithPlaces(CommandContext& context, const RunRow& row, const absl::Status& status) {
  if (FaultOf(status) != LinkFault::kReleased) return status;
  const std::vector<std::string> places = PlacesOf(context, row);
  if (places.empty()) return status;
  // The hint of the link knows of no results.
  const absl::Status told =
      WithFault(absl::Status(status.code(), status.message()), LinkFault::kReleased);
  return WithExitCode(WithHint(WithCause(told, CauseOf(status)),
                               absl::StrCat("what came home before is in ", FirstFew(places),
                                            "; what did not is gone with the machine")),
                      static_cast<ExitCode>(ExitCodeOf(status)));
}

// Says that the newest checkpoint, which comes, is not where the number was best.
void TellIfBestIsOlder(CommandContext& context, const ResultFlags& result, const RunRow& row) {
  const absl::StatusOr<std::vector<PlotPoint>> points = PointsToChooseBy(context, result, row);
  if (!points.ok()) return;
  const auto best = std::min_element(
      points->begin(), points->end(),
      [](const PlotPoint& one, const PlotPoint& other) { return one.y < other.y; });
  if (best->y >= points->back().y) return;
  context.Say(absl::StrCat("its newest checkpoint comes, and ", result.metric, " was best at step ",
                           static_cast<int64_t>(best->x)));
  context.Hint("--checkpoint best brings that one, by the same number");
}

// Says that the checkpoint that came is not of the step at which the number was best.
void TellIfBestWasNotSaved(CommandContext& context, const ResultFlags& result,
                           const PullRequest& request, const PullResults& pulled) {
  if (pulled.checkpoints.empty() || !pulled.checkpoints[0].at("step").is_number_integer()) return;
  const auto step = pulled.checkpoints[0].at("step").get<int64_t>();
  const auto best = std::min_element(
      request.best_by->begin(), request.best_by->end(),
      [](const PlotPoint& one, const PlotPoint& other) { return one.y < other.y; });
  const auto best_step = static_cast<int64_t>(best->x);
  // Several steps may share the best value.
  const bool is_best =
      std::any_of(request.best_by->begin(), request.best_by->end(), [&](const PlotPoint& point) {
        return static_cast<int64_t>(point.x) == step && point.y == best->y;
      });
  if (is_best) return;
  context.Say(absl::StrCat(result.metric, " was best at step ", best_step,
                           ", which no checkpoint has; that of step ", step,
                           " is the best one that was saved"));
}

// Brings what `request` says of one run. `again` is what goes on after an interruption.
absl::Status PullOne(CommandContext& context, RunStore& store, RunRow& row, PullRequest request,
                     const ResultFlags& result, const std::string& again, PullResults& pulled) {
  if (request.checkpoint == "best" && !row.end.has_value()) {
    absl::Status error;
    RETURN_IF_ERROR(CatchUp(context, store, row, kPullPatience, &error).status());
  }
  if (request.checkpoint == "best" && !result.metric.empty()) {
    ASSIGN_OR_RETURN(request.best_by, PointsToChooseBy(context, result, row));
  } else if (request.checkpoint.empty() && !result.metric.empty()) {
    TellIfBestIsOlder(context, result, row);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  ASSIGN_OR_RETURN(
      const auto interrupt,
      TransferInterrupt::Install(context, absl::StrCat("pull ", row.name),
                                 absl::StrCat("all stays on ", row.target.name,
                                              ", and what has come so far stays in ", request.to),
                                 absl::StrCat(again, " goes on with the rest")));
  RETURN_IF_ERROR(WithPlaces(context, row, BringResults(context, *links, row, request, pulled)));
  if (request.best_by.has_value()) TellIfBestWasNotSaved(context, result, request, pulled);
  return absl::OkStatus();
}

// Brings what the other machines of a run on several have, into directories of their own:
// ./RUN.node1 beside ./RUN. An error with one does not keep the others from coming. Adds them to
// `json`; returns the exit code of the first error.
absl::StatusOr<int> PullMembers(CommandContext& context, RunStore& store, const RunRow& row,
                                const PullFlags& flags, const PullRequest& of_run,
                                nlohmann::ordered_json& json) {
  ASSIGN_OR_RETURN(std::vector<RunRow> members, store.Members(row.run_id));
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  int code = kExitOk;
  for (RunRow& member : members) {
    PullRequest request = of_run;
    request.to = PlaceOfMember(of_run.to, member);
    PullResults pulled;
    const std::string again = absl::StrCat("gpuctl pull ", row.name, " --node ", member.rank);
    absl::Status status = PullOne(context, store, member, request, flags.result, again, pulled);
    if (absl::IsCancelled(status)) return status;
    // Its machine may be gone, and all of it be here.
    if (!status.ok() && request.patterns.empty() && IsNotedHome(paths, member)) {
      context.Say(absl::StrCat("all results of ", member.name, " came home before"));
      status = absl::OkStatus();
    }
    // Often only one of them writes results, or has the files that were named.
    const bool named = !request.patterns.empty() && absl::IsNotFound(status);
    if (named) context.Warn(status.message());
    if (named || CauseOf(status) == kNothingToBring) status = absl::OkStatus();
    nlohmann::ordered_json object = ToJson(member, request, pulled);
    object["error"] = status.ok() ? nlohmann::ordered_json() : ErrorToJson(status);
    json["members"].push_back(std::move(object));
    if (status.ok()) continue;
    if (code == kExitOk) code = ExitCodeOf(status);
    if (!context.json()) {
      context.PrintError(
          Annotate(status, absl::StrCat("the results of ", member.name, " are not here")));
    }
  }
  return code;
}

// True when something is here of one of `members`, as PullMembers added them.
bool BroughtSome(const nlohmann::ordered_json& members) {
  if (members.is_null()) return false;
  const auto& list = members.at("members");
  return std::any_of(list.begin(), list.end(), [](const nlohmann::ordered_json& one) {
    return !one.at("checkpoints").empty() || !one.at("files").empty();
  });
}

// Brings what `flags` say of each run into a directory of its own. An error with one run does not
// keep the others from coming. Returns the exit code of the first error.
absl::StatusOr<int> PullSeveral(CommandContext& context, RunStore& store, std::vector<RunRow> rows,
                                const PullFlags& flags) {
  int code = kExitOk;
  size_t failed = 0, nothing_to_bring = 0;
  std::vector<nlohmann::ordered_json> objects;
  for (RunRow& row : rows) {
    PullRequest request = flags.request;
    request.to =
        request.own_directory ? absl::StrCat("./", row.name) : JoinPath(flags.request.to, row.name);
    request.own_directory = true;
    PullResults pulled;
    const absl::Status status =
        PullOne(context, store, row, request, flags.result, "the same command", pulled);
    if (absl::IsCancelled(status)) return status;
    objects.push_back(ToJson(row, request, pulled));
    objects.back()["error"] = status.ok() ? nlohmann::ordered_json() : ErrorToJson(status);
    ASSIGN_OR_RETURN(const int others,
                     PullMembers(context, store, row, flags, request, objects.back()));
    if (status.ok() && others == kExitOk) continue;
    if (status.ok() && code == kExitOk) code = others;
    if (status.ok()) {
      ++failed;
      continue;
    }
    ++failed;
    if (code == kExitOk) code = ExitCodeOf(status);
    if (context.json()) continue;
    // Its hint is the same for each of them, and follows once.
    const bool nothing = CauseOf(status) == kNothingToBring;
    nothing_to_bring += nothing ? 1 : 0;
    context.PrintError(nothing ? absl::Status(status.code(), status.message()) : status);
  }
  if (context.json()) context.PrintJsonList("runs", objects);
  if (nothing_to_bring > 0) {
    context.Hint(
        "the same command with a pattern behind it, such as 'outputs/**', brings some "
        "files of each; '**' brings all, those that were sent, too");
  }
  if (failed > 0) {
    context.Say(absl::StrCat(rows.size() - failed, " of ", rows.size(), " runs came"));
  }
  return code;
}

// Returns the runs of a batch that were started; with `best`, only the one with the best value.
absl::StatusOr<std::vector<RunRow>> RunsOfBatch(CommandContext& context, RunStore& store,
                                                const std::string& name, bool best,
                                                const ResultFlags& result) {
  ASSIGN_OR_RETURN(const std::unique_ptr<BatchStore> batches, OpenBatches(context));
  RETURN_IF_ERROR(batches->Get(name).status());
  ASSIGN_OR_RETURN(const std::vector<BatchView> views,
                   ReadBatches(store, *batches, {name}, /*open_only=*/false));
  std::vector<RunRow> rows;
  if (best) {
    ASSIGN_OR_RETURN(const RunRow found, FindBestRun(context, result, views));
    ASSIGN_OR_RETURN(rows.emplace_back(), store.Get(found.run_id));
    context.Say(absl::StrCat("the best run of ", name, " is ", rows.front().name));
    TellOfOpenEntries(context, views);
    return rows;
  }
  size_t not_started = 0;
  for (const BatchView& view : views) {
    for (const EntryView& entry : view.entries) {
      const bool started = entry.run.has_value() && entry.entry.state == EntryState::kStarted;
      not_started += started ? 0 : 1;
      if (!started) continue;
      // A list of runs leaves out what each is to bring home.
      ASSIGN_OR_RETURN(rows.emplace_back(), store.Get(entry.run->run_id));
    }
  }
  if (rows.empty()) {
    return WithHint(absl::NotFoundError(absl::StrCat("pull: no run of ", name, " was started yet")),
                    absl::StrCat("gpuctl queue ", name, " shows why"));
  }
  if (not_started > 0) {
    context.Say(absl::StrCat(not_started, " of the runs of ", name,
                             not_started == 1 ? " was not started" : " were not started"));
  }
  return rows;
}

// Returns the path here of the pulled copy of a checkpoint with the node's current content; "" when
// there is none.
std::string CopyHere(const std::vector<PulledItem>& items,
                     const gpuctl::v1::CheckpointInfo& checkpoint) {
  for (const PulledItem& item : items) {
    if (item.kind != PulledItem::Kind::kFiles && item.from == checkpoint.path() &&
        item.node_modified_ms == checkpoint.modified_ms() && PathExists(item.path)) {
      return item.path;
    }
  }
  return "";
}

// Returns the path as it is typed from the current directory where it is below that.
std::string FromHere(const std::string& path) {
  std::error_code error;
  const std::string here = std::filesystem::current_path(error).string() + "/";
  return !error && here != "//" && absl::StartsWith(path, here)
             ? absl::StrCat("./", path.substr(here.size()))
             : path;
}

// Lists the checkpoints that the run's machine has, and brings nothing.
absl::Status ListThere(CommandContext& context, const RunRow& row) {
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context, *links, row.target));
  ASSIGN_OR_RETURN(gpuctl::v1::ListArtifactsReply reply,
                   calls.ListArtifacts(row.job_id, "", row.checkpoint_patterns));
  RETURN_IF_ERROR(CheckListing("", row.checkpoint_patterns, reply));
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const std::vector<PulledItem> items,
                   PulledRecord(paths.MirrorDir(row.run_id)).Read());
  MirrorReader mirror(paths.MirrorDir(row.run_id), row.output_segment_bytes);
  if (const absl::Status read = mirror.RefreshAll(); !read.ok()) context.Warn(read.message());
  const std::vector<PlotPoint>& losses = mirror.progress().losses();
  // By these --checkpoint best chooses.
  const std::vector<PlotPoint>& eval_losses = mirror.progress().eval_losses();
  std::vector<TableRow> table = {
      {"STEP", "CHECKPOINT", "SIZE", eval_losses.empty() ? "LOSS" : "EVAL LOSS", "MADE", "HERE"}};
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const gpuctl::v1::CheckpointInfo& checkpoint : reply.checkpoints()) {
    const std::string here = CopyHere(items, checkpoint);
    const bool foreign = checkpoint.kind() == gpuctl::v1::CheckpointInfo::KIND_FOREIGN;
    const bool has_step = checkpoint.step() >= 0;
    const std::string made = FormatRfc3339(checkpoint.modified_ms());
    const std::optional<double> loss = ValueAt(checkpoint, losses);
    const std::optional<double> eval_loss = ValueAt(checkpoint, eval_losses);
    const std::optional<double>& shown = eval_losses.empty() ? loss : eval_loss;
    table.push_back({has_step ? absl::StrCat(checkpoint.step()) : "-", checkpoint.path(),
                     FormatBytes(checkpoint.size()), shown.has_value() ? FormatNumber(*shown) : "-",
                     absl::StrCat(Ago(context, checkpoint.modified_ms()), " ago"),
                     here.empty() ? "-" : FromHere(here)});
    list.push_back(
        {{"step", has_step ? nlohmann::ordered_json(checkpoint.step()) : nlohmann::ordered_json()},
         {"kind", foreign ? "foreign" : "trainer"},
         {"path", checkpoint.path()},
         {"bytes", checkpoint.size()},
         {"made", made},
         {"loss", NumberToJson(loss)},
         {"eval_loss", NumberToJson(eval_loss)},
         {"here", here.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(here)}});
  }
  if (context.json()) {
    context.PrintJson({{"run_id", row.run_id}, {"name", row.name}, {"checkpoints", list}});
  } else if (list.empty()) {
    context.Say(absl::StrCat(row.name, " has no whole checkpoint on ", row.target.name));
  } else {
    PrintTableFor(context, std::move(table), {"MADE", "HERE", "SIZE"});
  }
  return absl::OkStatus();
}

// True when `argument` is the whole name or id of a run. Less could be a file.
bool NamesRun(RunStore& store, const std::string& argument) {
  const absl::StatusOr<RunRow> row = store.Get(argument);
  return row.ok() && (row->name == argument || row->run_id == argument || argument == "@last");
}

// Returns the runs that the arguments name, and leaves the patterns behind them in `flags`. The
// first argument is always a run.
absl::StatusOr<std::vector<RunRow>> RunsOfArguments(CommandContext& context, RunStore& store,
                                                    PullFlags& flags) {
  size_t runs = std::min<size_t>(flags.arguments.size(), 1);
  if (runs > 0 && flags.arguments[0].find_first_of("*?/") != std::string::npos) {
    return UsageError(absl::StrCat("pull: ", MakeSafe(flags.arguments[0]),
                                   " is no run, and the run stands in front of the patterns"),
                      absl::StrCat("gpuctl pull @last ", TypedName(flags.arguments[0], "PATTERN"),
                                   " takes the newest run"));
  }
  while (runs > 0 && runs < flags.arguments.size() && NamesRun(store, flags.arguments[runs]))
    ++runs;
  const auto patterns = flags.arguments.begin() + static_cast<ptrdiff_t>(runs);
  flags.request.patterns.assign(patterns, flags.arguments.end());
  flags.arguments.erase(patterns, flags.arguments.end());
  RETURN_IF_ERROR(NormalizePatterns("pull", PatternsOf::kFiles, flags.request.patterns));
  RETURN_IF_ERROR(CheckNoBatch(
      context, flags.arguments,
      "gpuctl pull --best $ brings the best one's results, gpuctl pull --batch $ those of all"));
  RETURN_IF_ERROR(CheckStarted(context, flags.arguments));
  ASSIGN_OR_RETURN(std::vector<RunRow> rows, FindRuns(context, store, flags.arguments));
  std::vector<RunRow> once;
  for (RunRow& row : rows) {
    const bool known = std::any_of(once.begin(), once.end(), [&row](const RunRow& other) {
      return other.run_id == row.run_id;
    });
    if (!known) once.push_back(std::move(row));
  }
  return once;
}

absl::Status EitherOr() {
  return UsageError("pull takes either runs, or --batch, or --best",
                    "gpuctl pull --best BATCH brings the best run, --batch BATCH all of them");
}

// Makes the arguments beside --batch or --best the patterns; none may be a run.
absl::Status TakePatterns(CommandContext& context, RunStore& store, PullFlags& flags) {
  RETURN_IF_ERROR(CheckNoBatch(context, flags.arguments,
                               "beside --batch and --best, pull takes patterns of files"));
  for (const std::string& argument : flags.arguments) {
    if (NamesRun(store, argument)) return EitherOr();
  }
  flags.request.patterns = std::move(flags.arguments);
  flags.arguments.clear();
  return NormalizePatterns("pull", PatternsOf::kFiles, flags.request.patterns);
}

absl::Status CheckFlags(const PullFlags& flags) {
  if (!flags.watch && !flags.keep.empty()) {
    return UsageError("--keep goes with --watch", "gpuctl pull RUN --watch --keep 2");
  }
  const bool of_batch = !flags.batch.empty() || !flags.best.empty();
  if (flags.watch &&
      (flags.arguments.size() > 1 || of_batch || !flags.request.checkpoint.empty())) {
    return UsageError("--watch brings the checkpoints of one run, all of them as they come",
                      "name files, several runs or one checkpoint without --watch");
  }
  if (!flags.batch.empty() && !flags.best.empty()) return EitherOr();
  if (flags.list && (flags.watch || of_batch || flags.arguments.size() > 1 ||
                     !flags.request.checkpoint.empty())) {
    return UsageError("--list lists the checkpoints of one run, and brings nothing",
                      "gpuctl pull RUN --list");
  }
  const bool chooses = !flags.best.empty() || flags.request.checkpoint == "best";
  if (!chooses && (!flags.result.metric.empty() || !flags.result.goal.empty())) {
    return UsageError("--metric and --goal go with --best, or with --checkpoint best",
                      "gpuctl pull --best BATCH --metric eval_loss");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> CmdPull(CommandContext& context, std::vector<std::string> args) {
  PullFlags flags;
  VerbParser parser(
      context, "pull [RUN... [PATTERN...]] [FLAGS]",
      "Brings the newest checkpoint and the artifacts of runs home, each file verified.",
      "  gpuctl pull amber-fox-3\n"
      "  gpuctl pull amber-fox-3 'outputs/*.json' --to results\n"
      "  gpuctl pull amber-fox-3 --checkpoint best\n"
      "  gpuctl pull --best sweep --metric eval_loss     the best run of a batch\n\n"
      "Several runs come into a directory each. After the first argument, the whole name\n"
      "of a run is a run; whatever follows is a pattern (./NAME for a file with such a\n"
      "name). Patterns are relative to the job's work directory: 'outputs/*.json',\n"
      "'**/*.csv'. A checkpoint appears under its name only when all of it is here and\n"
      "matches.");
  parser.Option("RUN", flags.arguments,
                absl::StrCat(kRunOrNewestLive, "; then\nfiles to bring instead"));
  parser.Option("--to", flags.request.to,
                "Directory to bring them to (default ./RUN); of several runs each\n"
                "has its own in it");
  parser.Option("--checkpoint", flags.request.checkpoint,
                "latest, best (by evaluation, or --metric), a step or a name");
  parser.Option("--batch", flags.batch,
                "Bring all runs of this batch, or the files of each that\n"
                "match the patterns");
  parser.Option("--best", flags.best, "Bring the best run of this batch");
  parser.Option("--metric", flags.result.metric,
                "With --best and --checkpoint best: by which number");
  parser.Option("--goal", flags.result.goal,
                "min or max: which values of it are best (default: as its name says)");
  parser.Option("--streams", flags.request.streams, "Connections to use (default: as many as help)")
      .Range(1, 16);
  parser.Switch("--overwrite", flags.request.overwrite,
                "Replace files here that pull did not bring");
  parser.Switch("--list", flags.list, "List the checkpoints that are there; bring nothing");
  const FlagSet::Flag node =
      parser
          .Option("--node", flags.node, "Of a run on several machines: only from this one, from 0")
          .Range(0, kMostNodes - 1);
  parser.Switch("--watch", flags.watch, "Bring new checkpoints until the run has ended");
  parser.Option("--keep", flags.keep, "With --watch: keep only the newest N here");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(const int keep, ParseKeep(flags.keep, "--keep"));
  RETURN_IF_ERROR(CheckFlags(flags));
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  const std::string& batch = flags.best.empty() ? flags.batch : flags.best;
  std::vector<RunRow> rows;
  if (batch.empty()) {
    ASSIGN_OR_RETURN(rows, RunsOfArguments(context, *store, flags));
  } else {
    RETURN_IF_ERROR(TakePatterns(context, *store, flags));
    ASSIGN_OR_RETURN(rows, RunsOfBatch(context, *store, batch, !flags.best.empty(), flags.result));
  }
  flags.request.own_directory = flags.request.to.empty();
  if (rows.size() > 1 || !flags.batch.empty()) {
    if (node.given()) {
      return UsageError("--node names a machine of one run", "gpuctl pull RUN --node 1");
    }
    return PullSeveral(context, *store, std::move(rows), flags);
  }
  RunRow& row = rows.front();
  if (node.given()) {
    ASSIGN_OR_RETURN(row, MemberOf(*store, row, flags.node));
  }
  if (flags.list) {
    RETURN_IF_ERROR(ListThere(context, row));
    return kExitOk;
  }
  const std::string again = CommandFor(row, flags.request);
  nlohmann::ordered_json members;
  int code = kExitOk;
  if (flags.request.own_directory) flags.request.to = absl::StrCat("./", row.name);
  // Also a directory of the run's name elsewhere: keep brings them there.
  flags.request.own_directory |= BaseName(flags.request.to) == row.name;
  PullResults pulled;
  if (flags.watch) {
    RETURN_IF_ERROR(WatchPull(context, *store, row, flags, keep, pulled));
  } else {
    const absl::Status own =
        PullOne(context, *store, row, flags.request, flags.result, again, pulled);
    if (absl::IsCancelled(own)) return own;
    if (!node.given()) {
      ASSIGN_OR_RETURN(code, PullMembers(context, *store, row, flags, flags.request, members));
    }
    // Another machine than the first may be the one that writes results.
    const bool others_did = CauseOf(own) == kNothingToBring && BroughtSome(members);
    if (!others_did) RETURN_IF_ERROR(own);
  }
  if (context.json()) {
    nlohmann::ordered_json result = ToJson(row, flags.request, pulled);
    if (!members.is_null()) result["members"] = std::move(members["members"]);
    context.PrintJson(result);
  }
  return code;
}

}  // namespace gpuctl
