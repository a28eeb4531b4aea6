// gpuctl pull: bring checkpoints and files home, verified.
#include <poll.h>

#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/checkpoint_choice.h"
#include "client/checkpoint_watch.h"
#include "client/cmd.h"
#include "client/follow_run.h"
#include "client/mirror_reader.h"
#include "client/node_access.h"
#include "client/node_limits.h"
#include "client/pull_run.h"
#include "client/quantity.h"
#include "client/sftp_pull.h"
#include "client/signal_pipe.h"
#include "client/verb_parser.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(10);

struct PullFlags {
  std::string reference, to, checkpoint;
  std::vector<std::string> patterns;
  bool named_by_us = false;  // `to` is the default
  int streams = 0;
  bool watch = false;
  std::string keep;
};

nlohmann::ordered_json StepOrNull(const gpuctl::v1::CheckpointInfo& checkpoint) {
  if (checkpoint.step() < 0) return nullptr;
  return checkpoint.step();
}

const char* KindWord(const gpuctl::v1::CheckpointInfo& checkpoint) {
  return checkpoint.kind() == gpuctl::v1::CheckpointInfo::KIND_FOREIGN ? "foreign" : "trainer";
}

struct Results {
  nlohmann::ordered_json checkpoints = nlohmann::ordered_json::array();
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  int64_t bytes = 0;
};

void TakeBrought(CommandContext& context, const CheckpointWatch::News& news, Results& pulled) {
  for (const std::string& notice : news.notices) {
    PrintProgress(context, absl::StrCat("gpuctl: ", notice));
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

class Puller {
 public:
  Puller(CommandContext& context, LinkFactory& links, const RunRow& row, const PullFlags& flags)
      : context_(context), links_(links), row_(row), flags_(flags) {}
  // What tells what there is: the agent, or plain SFTP.
  void Use(NodeCalls& calls) { calls_ = &calls; }
  void Use(SftpPull& sftp) { sftp_ = &sftp; }

  absl::Status Run() {
    // Asked before anything is listed: what a job that was over has left does not change any more.
    bool limited = false, over = false;
    if (calls_ != nullptr) {
      ASSIGN_OR_RETURN(const gpuctl::v1::HelloReply node, calls_->Hello());
      limited = node.has_limits();
      over = IsJobOver(node, row_.job_id);
    }
    const absl::Status status = BringAll();
    // Of a run that left nothing, nothing is all there is.
    const bool everything = flags_.patterns.empty() && flags_.checkpoint.empty();
    if (limited && (status.ok() || (nothing_ && everything))) {
      const absl::Status told = TellHome(*calls_, row_, step_, everything && over);
      if (!told.ok()) {
        PrintProgress(context_,
                      absl::StrCat("gpuctl: the node keeps its results: ", told.message()));
      }
    }
    return status;
  }
  const Results& pulled() const { return pulled_; }

 private:
  absl::Status BringAll() {
    std::vector<std::string> patterns = flags_.patterns;
    const bool everything = patterns.empty() && flags_.checkpoint.empty();
    if (everything) patterns = row_.artifact_patterns;
    if (everything || !flags_.checkpoint.empty()) RETURN_IF_ERROR(Checkpoint(everything));
    for (const std::string& pattern : patterns) RETURN_IF_ERROR(Files(pattern, !everything));
    if (pulled_.checkpoints.empty() && pulled_.files.empty()) {
      nothing_ = true;
      return WithHint(
          absl::NotFoundError(absl::StrCat("pull ", row_.name, ": nothing to bring yet")),
          absl::StrCat("name files of its work directory: gpuctl pull ", row_.name,
                       " 'outputs/**'"));
    }
    return absl::OkStatus();
  }

  absl::Status Checkpoint(bool may_have_none) {
    ASSIGN_OR_RETURN(const gpuctl::v1::ListArtifactsReply reply,
                     List("", row_.checkpoint_patterns));
    const std::vector<gpuctl::v1::CheckpointInfo> checkpoints(reply.checkpoints().begin(),
                                                              reply.checkpoints().end());
    if (checkpoints.empty() && may_have_none) return absl::OkStatus();
    ASSIGN_OR_RETURN(const ClientPaths paths, context_.Paths());
    MirrorReader mirror(paths.MirrorDir(row_.run_id), row_.output_segment_bytes);
    RETURN_IF_ERROR(mirror.Refresh());
    ASSIGN_OR_RETURN(
        const gpuctl::v1::CheckpointInfo chosen,
        ChooseCheckpoint(checkpoints, flags_.checkpoint.empty() ? "latest" : flags_.checkpoint,
                         mirror.progress().eval_losses()));
    RETURN_IF_ERROR(MakeDestination());
    ASSIGN_OR_RETURN(const std::string name, HomeName(chosen));
    const std::string path = JoinPath(flags_.to, name);
    ASSIGN_OR_RETURN(const bool brought, Bring(chosen, path));
    const bool verified =
        sftp_ == nullptr || (brought && chosen.kind() == gpuctl::v1::CheckpointInfo::KIND_TRAINER);
    pulled_.checkpoints.push_back({{"step", StepOrNull(chosen)},
                                   {"kind", KindWord(chosen)},
                                   {"path", path},
                                   {"bytes", chosen.size()},
                                   {"already_here", !brought},
                                   {"verified", verified}});
    if (brought) pulled_.bytes += chosen.size();
    if (chosen.kind() == gpuctl::v1::CheckpointInfo::KIND_TRAINER) step_ = chosen.step();
    PrintProgress(context_, absl::StrCat("gpuctl: ", path, ": ", FormatBytes(chosen.size()),
                                         brought ? "" : ", was here already",
                                         verified ? ", verified" : ", not verified"));
    return absl::OkStatus();
  }

  absl::Status Files(const std::string& pattern, bool must_match) {
    ASSIGN_OR_RETURN(const gpuctl::v1::ListArtifactsReply reply, List(pattern, {}));
    if (reply.files().empty() && must_match) {
      return WithHint(absl::NotFoundError(
                          absl::StrCat("pull ", row_.name, ": no file matches \"", pattern, "\"")),
                      absl::StrCat("patterns are relative to the work directory; gpuctl exec ",
                                   row_.name, " -- find . -type f lists it"));
    }
    std::vector<gpuctl::v1::Artifact> wanted;
    for (const gpuctl::v1::Artifact& file : reply.files()) {
      if (seen_.insert(file.path()).second) wanted.push_back(file);
    }
    if (wanted.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(MakeDestination());
    if (sftp_ != nullptr) {
      RETURN_IF_ERROR(sftp_->BringFiles(wanted, flags_.to));
      for (const gpuctl::v1::Artifact& file : wanted) pulled_.bytes += file.size();
    } else {
      ASSIGN_OR_RETURN(const TransferCount received,
                       PullFiles(context_, links_, row_, wanted, flags_.to, Style(pattern)));
      pulled_.bytes += received.bytes;
    }
    for (const gpuctl::v1::Artifact& file : wanted) {
      pulled_.files.push_back({{"path", file.path()}, {"bytes", file.size()}});
      // PullFiles has put it there.
      const std::string path = JoinPath(flags_.to, absl::StripPrefix(file.path(), "work/"));
      PrintProgress(context_, absl::StrCat("gpuctl: ", path, ": ", FormatBytes(file.size()),
                                           sftp_ == nullptr ? ", verified" : ", not verified"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<gpuctl::v1::ListArtifactsReply> List(
      const std::string& pattern, const std::vector<std::string>& checkpoint_patterns) {
    if (sftp_ != nullptr) return sftp_->List(pattern);
    return calls_->ListArtifacts(row_.job_id, pattern, checkpoint_patterns);
  }

  absl::StatusOr<bool> Bring(const gpuctl::v1::CheckpointInfo& chosen, const std::string& path) {
    if (sftp_ == nullptr) {
      return PullCheckpoint(context_, links_, row_, chosen, flags_.to, Style(BaseName(path)));
    }
    if (PathExists(path)) return false;
    RETURN_IF_ERROR(sftp_->BringCheckpoint(chosen, flags_.to));
    return true;
  }

  TransferStyle Style(std::string what) const {
    TransferStyle style;
    style.streams = flags_.streams;
    style.what = std::move(what);
    return style;
  }

  absl::Status MakeDestination() {
    return flags_.named_by_us ? MakeOwnDestination(flags_.to) : absl::OkStatus();
  }

  CommandContext& context_;
  LinkFactory& links_;
  NodeCalls* calls_ = nullptr;
  SftpPull* sftp_ = nullptr;
  const RunRow& row_;
  const PullFlags& flags_;
  std::set<std::string> seen_;
  std::optional<int64_t> step_;  // of the checkpoint that is home now
  bool nothing_ = false;
  Results pulled_;
};

void PrintJson(const RunRow& row, const PullFlags& flags, const Results& pulled) {
  nlohmann::ordered_json json;
  json["run_id"] = row.run_id;
  json["name"] = row.name;
  json["to"] = flags.to;
  json["bytes"] = pulled.bytes;
  json["checkpoints"] = pulled.checkpoints;
  json["files"] = pulled.files;
  PrintOut(absl::StrCat(
      WithSchemaVersion(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)),
      "\n"));
}

// Tells what the watch tells until it is done, or until Ctrl-C.
absl::Status AwaitLastLook(CommandContext& context, CheckpointWatch& watch, Results& pulled) {
  ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGINT, SIGTERM, SIGHUP}));
  while (true) {
    const CheckpointWatch::News news = watch.Take();
    TakeBrought(context, news, pulled);
    if (news.done) return absl::OkStatus();
    pollfd polled[2] = {{watch.wake_fd(), POLLIN, 0}, {signals.fd(), POLLIN, 0}};
    poll(polled, 2, -1);
    if (signals.Take().empty()) continue;
    const absl::Status interrupted =
        WithExitCode(absl::CancelledError("interrupted"), static_cast<ExitCode>(130));
    if (!watch.Cancel(absl::Milliseconds(300))) ExitAtOnce(context, interrupted);
    return interrupted;
  }
}

// Brings every new checkpoint until the run has ended.
absl::Status WatchPull(CommandContext& context, RunRow& row, const PullFlags& flags, int keep,
                       Results& pulled) {
  ASSIGN_OR_RETURN(std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  CheckpointWatchOptions options;
  options.to = flags.to;
  options.own_directory = flags.named_by_us;
  options.keep = keep;
  options.streams = flags.streams;
  if (!flags.named_by_us) RETURN_IF_ERROR(MakeDirectories(flags.to, 0777));
  CheckpointWatch watch(context, row, std::move(links), std::move(options));
  RETURN_IF_ERROR(watch.Start());
  absl::Status followed;
  if (!row.end.has_value()) {
    ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> follow, MakeLinks(context, row.target));
    followed = FollowQuietly(context, row, *follow, absl::InfiniteDuration(),
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

absl::Status RunPull(CommandContext& context, LinkFactory& links, const RunRow& row,
                     Puller& puller) {
  absl::StatusOr<NodeCalls> calls = NodeCalls::Connect(context, links, row.target);
  absl::Status status = calls.status();
  if (calls.ok()) {
    puller.Use(*calls);
    status = puller.Run();
  }
  if (!AgentCannotRun(status)) return status;
  absl::StatusOr<std::unique_ptr<SftpPull>> sftp = SftpPull::Open(context, links, row);
  if (!sftp.ok()) {
    return Annotate(status, absl::StrCat("nor is there SFTP (", sftp.status().message(), ")"));
  }
  PrintProgress(context, absl::StrCat("gpuctl: the agent cannot run on ", row.target.name,
                                      "; bringing what there is by SFTP"));
  puller.Use(**sftp);
  return puller.Run();
}

absl::Status ExplainPull(const absl::Status& status, const RunRow& row) {
  if (absl::IsDataLoss(status)) {
    return WithHint(status, "nothing was overwritten; remove a bad copy and pull again");
  }
  if (absl::IsAborted(status)) return WithHint(status, "try again when the job is done with it");
  if (absl::IsNotFound(status)) {
    return WithHint(status,
                    absl::StrCat("gpuctl debug job ", row.name, " shows what the node knows"));
  }
  return status;
}

}  // namespace

absl::StatusOr<int> CmdPull(CommandContext& context, std::vector<std::string> args) {
  PullFlags flags;
  VerbParser parser(
      context, "pull RUN [PATTERN...] [FLAGS]",
      "Brings a run's newest checkpoint and its artifacts home, each file verified.",
      "Patterns are relative to the job's work directory: 'outputs/*.json', '**/*.csv'.\n"
      "A checkpoint appears under its name only when all of it is here and matches.");
  parser.app().add_option("RUN", flags.reference, "Name, id, or the beginning of one")->required();
  parser.app().add_option("PATTERN", flags.patterns, "Files to bring instead");
  parser.app().add_option("--to", flags.to, "Directory to bring them to (default ./RUN)");
  parser.app().add_option("--checkpoint", flags.checkpoint,
                          "latest, best (by evaluation), a step or a name");
  parser.app()
      .add_option("--streams", flags.streams, "Connections to use (default: as many as help)")
      ->check(CLI::Range(1, 16).description(""));
  parser.app().add_flag("--watch", flags.watch, "Bring new checkpoints until the run has ended");
  parser.app().add_option("--keep", flags.keep, "With --watch: keep only the newest so many here");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(std::move(args)));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(const int keep, ParseKeep(flags.keep, "--keep"));
  if (!flags.watch && !flags.keep.empty()) {
    return UsageError("--keep goes with --watch", "gpuctl pull RUN --watch --keep 2");
  }
  if (flags.watch && (!flags.patterns.empty() || !flags.checkpoint.empty())) {
    return UsageError("--watch brings checkpoints, all of them as they come",
                      "name files or one checkpoint without --watch");
  }
  ASSIGN_OR_RETURN(RunRow row, FindRun(context, flags.reference));
  flags.named_by_us = flags.to.empty();
  if (flags.named_by_us) flags.to = absl::StrCat("./", row.name);
  if (flags.watch) {
    Results pulled;
    RETURN_IF_ERROR(WatchPull(context, row, flags, keep, pulled));
    if (context.json()) PrintJson(row, flags, pulled);
    return kExitOk;
  }
  if (flags.checkpoint == "best" && !row.end.has_value()) {
    absl::Status error;
    RETURN_IF_ERROR(CatchUp(context, row, kPatience, &error).status());
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  Puller puller(context, *links, row, flags);
  if (absl::Status status = RunPull(context, *links, row, puller); !status.ok()) {
    return ExplainPull(status, row);
  }
  if (context.json()) PrintJson(row, flags, puller.pulled());
  return kExitOk;
}

}  // namespace gpuctl
