// gpuctl pull: bring checkpoints and files home, verified.
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/wake_pipe.h"
#include "client/follow/catch_up.h"
#include "client/node/make_links.h"
#include "client/results/checkpoint_watch.h"
#include "client/results/pull_results.h"
#include "client/runs/context.h"
#include "client/runs/find_run.h"
#include "client/spec/result_patterns.h"
#include "client/terminal/console.h"
#include "client/terminal/shown_name.h"
#include "client/transfer/transfer_interrupt.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/process/signal_pipe.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kPullPatience = absl::Seconds(10);

struct PullFlags {
  std::string reference, keep;
  PullRequest request;
  bool watch = false;
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

void PrintJson(const CommandContext& context, const RunRow& row, const PullFlags& flags,
               const PullResults& pulled) {
  nlohmann::ordered_json json;
  json["run_id"] = row.run_id;
  json["name"] = row.name;
  json["to"] = flags.request.to;
  json["bytes"] = pulled.bytes;
  json["checkpoints"] = pulled.checkpoints;
  json["files"] = pulled.files;
  context.PrintJson(json);
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

}  // namespace

absl::StatusOr<int> CmdPull(CommandContext& context, std::vector<std::string> args) {
  PullFlags flags;
  VerbParser parser(
      context, "pull [RUN [PATTERN...]] [FLAGS]",
      "Brings a run's newest checkpoint and its artifacts home, each file verified.",
      "  gpuctl pull amber-fox-3\n"
      "  gpuctl pull amber-fox-3 'outputs/*.json' --to results\n"
      "  gpuctl pull amber-fox-3 --checkpoint best\n\n"
      "Patterns are relative to the job's work directory: 'outputs/*.json', '**/*.csv'.\n"
      "A checkpoint appears under its name only when all of it is here and matches.");
  const FlagSet::Flag run = parser.Option("RUN", flags.reference, kRunOrNewestLive);
  parser.Option("PATTERN", flags.request.patterns, "Files to bring instead");
  parser.Option("--to", flags.request.to, "Directory to bring them to (default ./RUN)");
  parser.Option("--checkpoint", flags.request.checkpoint,
                "latest, best (by evaluation), a step or a name");
  parser.Option("--streams", flags.request.streams, "Connections to use (default: as many as help)")
      .Range(1, 16);
  parser.Switch("--overwrite", flags.request.overwrite,
                "Replace files here that pull did not bring");
  parser.Switch("--watch", flags.watch, "Bring new checkpoints until the run has ended");
  parser.Option("--keep", flags.keep, "With --watch: keep only the newest N here");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(const int keep, ParseKeep(flags.keep, "--keep"));
  if (!flags.watch && !flags.keep.empty()) {
    return UsageError("--keep goes with --watch", "gpuctl pull RUN --watch --keep 2");
  }
  if (flags.watch && (!flags.request.patterns.empty() || !flags.request.checkpoint.empty())) {
    return UsageError("--watch brings checkpoints, all of them as they come",
                      "name files or one checkpoint without --watch");
  }
  RETURN_IF_ERROR(NormalizePatterns("pull", PatternsOf::kFiles, flags.request.patterns));
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  if (run.given()) {
    RETURN_IF_ERROR(
        CheckNoBatch(context, {flags.reference},
                     "gpuctl queue $ --results names the best one; gpuctl pull $-1 brings one's"));
  }
  ASSIGN_OR_RETURN(RunRow row, FindRun(context, *store, run, flags.reference));
  flags.request.own_directory = flags.request.to.empty();
  if (flags.request.own_directory) flags.request.to = absl::StrCat("./", row.name);
  if (flags.watch) {
    PullResults pulled;
    RETURN_IF_ERROR(WatchPull(context, *store, row, flags, keep, pulled));
    if (context.json()) PrintJson(context, row, flags, pulled);
    return kExitOk;
  }
  if (flags.request.checkpoint == "best" && !row.end.has_value()) {
    absl::Status error;
    RETURN_IF_ERROR(CatchUp(context, *store, row, kPullPatience, &error).status());
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  PullResults pulled;
  std::string again = absl::StrCat("gpuctl pull ", row.name);
  for (const std::string& pattern : flags.request.patterns) {
    absl::StrAppend(&again, " ", TypedName(pattern, "PATTERN"));
  }
  ASSIGN_OR_RETURN(const auto interrupt,
                   TransferInterrupt::Install(
                       context, absl::StrCat("pull ", row.name),
                       absl::StrCat("all stays on ", row.target.name,
                                    ", and what has come so far stays in ", flags.request.to),
                       absl::StrCat(again, flags.request.own_directory ? "" : " --to DIR",
                                    " goes on with the rest")));
  RETURN_IF_ERROR(BringResults(context, *links, row, flags.request, pulled));
  if (context.json()) PrintJson(context, row, flags, pulled);
  return kExitOk;
}

}  // namespace gpuctl
