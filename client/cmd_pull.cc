// gpuctl pull: bring checkpoints and files home, verified.
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/checkpoint_choice.h"
#include "client/cmd.h"
#include "client/follow_run.h"
#include "client/mirror_reader.h"
#include "client/node_access.h"
#include "client/pull_run.h"
#include "client/quantity.h"
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
};

nlohmann::ordered_json StepOrNull(const gpuctl::v1::CheckpointInfo& checkpoint) {
  if (checkpoint.step() < 0) return nullptr;
  return checkpoint.step();
}

const char* KindWord(const gpuctl::v1::CheckpointInfo& checkpoint) {
  return checkpoint.kind() == gpuctl::v1::CheckpointInfo::KIND_FOREIGN ? "foreign" : "trainer";
}

struct Pulled {
  nlohmann::ordered_json checkpoints = nlohmann::ordered_json::array();
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  int64_t bytes = 0;
};

class Puller {
 public:
  Puller(CommandContext& context, LinkFactory& links, NodeCalls& calls, const RunRow& row,
         const PullFlags& flags)
      : context_(context), links_(links), calls_(calls), row_(row), flags_(flags) {}

  absl::Status Run() {
    std::vector<std::string> patterns = flags_.patterns;
    const bool everything = patterns.empty() && flags_.checkpoint.empty();
    if (everything) patterns = row_.artifact_patterns;
    if (everything || !flags_.checkpoint.empty()) RETURN_IF_ERROR(Checkpoint(everything));
    for (const std::string& pattern : patterns) RETURN_IF_ERROR(Files(pattern, !everything));
    if (pulled_.checkpoints.empty() && pulled_.files.empty()) {
      return WithHint(
          absl::NotFoundError(absl::StrCat("pull ", row_.name, ": nothing to bring yet")),
          absl::StrCat("name files of its work directory: gpuctl pull ", row_.name,
                       " 'outputs/**'"));
    }
    return absl::OkStatus();
  }
  const Pulled& pulled() const { return pulled_; }

 private:
  absl::Status Checkpoint(bool may_have_none) {
    ASSIGN_OR_RETURN(const gpuctl::v1::ListArtifactsReply reply,
                     calls_.ListArtifacts(row_.job_id, "", row_.checkpoint_patterns));
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
    ASSIGN_OR_RETURN(const bool brought,
                     PullCheckpoint(context_, links_, row_, chosen, flags_.to, Style(name)));
    const std::string path = JoinPath(flags_.to, name);
    pulled_.checkpoints.push_back({{"step", StepOrNull(chosen)},
                                   {"kind", KindWord(chosen)},
                                   {"path", path},
                                   {"bytes", chosen.size()},
                                   {"already_here", !brought}});
    if (brought) pulled_.bytes += chosen.size();
    PrintProgress(context_, absl::StrCat("gpuctl: ", path, ": ", FormatBytes(chosen.size()),
                                         brought ? ", verified" : ", was here already, verified"));
    return absl::OkStatus();
  }

  absl::Status Files(const std::string& pattern, bool must_match) {
    ASSIGN_OR_RETURN(const gpuctl::v1::ListArtifactsReply reply,
                     calls_.ListArtifacts(row_.job_id, pattern));
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
    ASSIGN_OR_RETURN(const TransferCount received,
                     PullFiles(context_, links_, row_, wanted, flags_.to, Style(pattern)));
    pulled_.bytes += received.bytes;
    for (const gpuctl::v1::Artifact& file : wanted) {
      pulled_.files.push_back({{"path", file.path()}, {"bytes", file.size()}});
      // PullFiles has put it there.
      const std::string path = JoinPath(flags_.to, absl::StripPrefix(file.path(), "work/"));
      PrintProgress(context_,
                    absl::StrCat("gpuctl: ", path, ": ", FormatBytes(file.size()), ", verified"));
    }
    return absl::OkStatus();
  }

  TransferStyle Style(std::string what) const {
    TransferStyle style;
    style.streams = flags_.streams;
    style.what = std::move(what);
    return style;
  }

  // What was brought home must not be sent back by the next launch. A directory that was there
  // before belongs to the user and stays as it is.
  absl::Status MakeDestination() {
    if (!flags_.named_by_us || PathExists(flags_.to)) return absl::OkStatus();
    RETURN_IF_ERROR(MakeDirectories(flags_.to, 0777));
    return WriteFileAtomic(JoinPath(flags_.to, ".gpuctlignore"), "*\n", 0644);
  }

  CommandContext& context_;
  LinkFactory& links_;
  NodeCalls& calls_;
  const RunRow& row_;
  const PullFlags& flags_;
  std::set<std::string> seen_;
  Pulled pulled_;
};

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
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(std::move(args)));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(RunRow row, FindRun(context, flags.reference));
  flags.named_by_us = flags.to.empty();
  if (flags.named_by_us) flags.to = absl::StrCat("./", row.name);
  if (flags.checkpoint == "best" && !row.end.has_value()) {
    absl::Status error;
    RETURN_IF_ERROR(CatchUp(context, row, kPatience, &error).status());
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context, *links, row.target));
  Puller puller(context, *links, calls, row, flags);
  if (absl::Status status = puller.Run(); !status.ok()) return ExplainPull(status, row);
  if (context.json()) {
    nlohmann::ordered_json json;
    json["run_id"] = row.run_id;
    json["name"] = row.name;
    json["to"] = flags.to;
    json["bytes"] = puller.pulled().bytes;
    json["checkpoints"] = puller.pulled().checkpoints;
    json["files"] = puller.pulled().files;
    PrintOut(absl::StrCat(
        WithSchemaVersion(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)),
        "\n"));
  }
  return kExitOk;
}

}  // namespace gpuctl
