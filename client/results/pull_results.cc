#include "client/results/pull_results.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/home/not_home.h"
#include "client/home/nothing_to_bring.h"
#include "client/home/other_parts.h"
#include "client/node/listing.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/node/tell_node.h"
#include "client/results/checkpoint_choice.h"
#include "client/results/pull_files.h"
#include "client/results/sftp_pull.h"
#include "client/streams/mirror_reader.h"
#include "client/terminal/console.h"
#include "client/terminal/shown_name.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/job/checkpoint_layout.h"
#include "common/transfer/transfer.h"

namespace gpuctl {
namespace {

// The most bytes of results that no pattern names which come home without a question.
constexpr int64_t kMostUndeclaredBytes = int64_t{1} << 30;

nlohmann::ordered_json StepOrNull(const gpuctl::v1::CheckpointInfo& checkpoint) {
  if (checkpoint.step() < 0) return nullptr;
  return checkpoint.step();
}

const char* KindWord(const gpuctl::v1::CheckpointInfo& checkpoint) {
  return checkpoint.kind() == gpuctl::v1::CheckpointInfo::KIND_FOREIGN ? "foreign" : "trainer";
}

// True for a path with a part that its writer will rename.
bool IsTemporary(absl::string_view path) {
  const std::vector<std::string> parts = absl::StrSplit(path, '/');
  return std::any_of(parts.begin(), parts.end(), IsTemporaryName);
}

class Puller {
 public:
  Puller(CommandContext& context, LinkFactory& links, const RunRow& row, const PullRequest& request)
      : context_(context), links_(links), row_(row), request_(request) {}
  // Set the source of the lists: the agent, or plain SFTP.
  void Use(NodeCalls& calls) { calls_ = &calls; }
  void Use(SftpPull& sftp) {
    calls_ = nullptr;  // its link is broken
    sftp_ = &sftp;
  }

  absl::Status Run() {
    // Ask before listing: when the job is over already, its results do not change any more.
    bool over = false;
    limited_ = false;
    if (calls_ != nullptr) {
      ASSIGN_OR_RETURN(const gpuctl::v1::HelloReply node, calls_->Hello({row_.job_id}));
      limited_ = node.has_limits();
      over = IsJobOver(node, row_.job_id);
    }
    const absl::Status status = BringAll();
    // A run whose job made nothing is home as a whole.
    bool everything = request_.patterns.empty() && request_.checkpoint.empty();
    if (over && status.ok() && !everything) {
      ASSIGN_OR_RETURN(everything, FilesAreEverything());
    }
    if (everything && over && (status.ok() || pulled_.nothing)) {
      // What came is here all the same.
      if (const absl::Status noted = NoteAllHome(); !noted.ok()) {
        context_.Warn(absl::StrCat("that all is at home was not noted: ", noted.message()));
      }
    }
    if (limited_ && (status.ok() || (pulled_.nothing && everything))) {
      RETURN_IF_ERROR(TellNodes(everything && over));
    }
    return status;
  }
  const PullResults& pulled() const { return pulled_; }

 private:
  // After a pull of patterns: true when they were all files, and the job left nothing but files.
  absl::StatusOr<bool> FilesAreEverything() {
    const bool all_files = std::find(request_.patterns.begin(), request_.patterns.end(), "**") !=
                           request_.patterns.end();
    if (!all_files || !request_.checkpoint.empty() || !unreached_.empty()) return false;
    ASSIGN_OR_RETURN(const gpuctl::v1::ListArtifactsReply listed,
                     List("", row_.checkpoint_patterns));
    return listed.checkpoints().empty() && listed.files().empty();
  }

  // Tells the node what is home. The first node of an allocation is told of its own part only when
  // all parts are home, because it ends all of them.
  absl::Status TellNodes(bool all) {
    ASSIGN_OR_RETURN(const ClientPaths paths, context_.Paths());
    const OtherParts others = FindOtherParts(paths, row_);
    const bool is_first = !others.first.has_value();
    Tell(*calls_, row_, step_, is_first ? all && others.all_home : all);
    if (is_first || !all || !others.all_home) return absl::OkStatus();
    const RunRow& first = *others.first;
    const absl::StatusOr<std::unique_ptr<LinkFactory>> links = MakeLinks(context_, first.target);
    absl::StatusOr<NodeCalls> calls =
        links.ok() ? NodeCalls::Connect(context_, **links, first.target) : links.status();
    if (calls.ok()) {
      Tell(*calls, first, std::nullopt, /*all=*/true);
    } else {
      context_.Warn(absl::StrCat("the node keeps its results: ", calls.status().message()));
    }
    return absl::OkStatus();
  }

  void Tell(NodeCalls& calls, const RunRow& row, std::optional<int64_t> step, bool all) {
    const absl::StatusOr<gpuctl::v1::NodeLimitsState> told = TellHome(calls, row, step, all);
    if (!told.ok()) {
      context_.Warn(absl::StrCat("the node keeps its results: ", told.status().message()));
    } else if (all && told->results_home()) {
      TellThatAllIsHome(row, *told);
    }
  }

  absl::Status NoteAllHome() {
    ASSIGN_OR_RETURN(const ClientPaths paths, context_.Paths());
    return PulledRecord(paths.MirrorDir(row_.run_id)).NoteAllHome(context_.NowMs());
  }

  // Says that the machine has no result any more that is not here, and when it ends itself.
  void TellThatAllIsHome(const RunRow& row, const gpuctl::v1::NodeLimitsState& node) const {
    const bool ends =
        node.can_release() && node.next() == gpuctl::v1::NodeLimitsState::NEXT_RELEASE;
    const absl::Duration left =
        std::max(absl::ZeroDuration(), absl::Milliseconds(node.next_ms() - context_.NowMs()));
    const std::string bill =
        absl::StrCat(ends ? absl::StrCat("; it ends itself in ", HumanDuration(left)) : "",
                     "; gpuctl down ", row.name, " ends its bill now");
    // A further node has no bill of its own.
    const bool bills = row.leader.empty() && !request_.machine_ends_next;
    context_.Say(absl::StrCat("all results that are on ", row.target.name, " are at home",
                              bills ? bill : ""));
    if (row.run_id != row_.run_id) return;
    const int64_t others = CheckpointsOnlyThere();
    if (others == 0) return;
    context_.Say(
        absl::StrCat(others, others == 1 ? " other checkpoint is" : " other checkpoints are",
                     " only there, because the newest one counts as the result; gpuctl pull ",
                     row_.name, " --list names them"));
  }

  // Returns how many checkpoints of the run, which is over, are not at home.
  int64_t CheckpointsOnlyThere() const {
    const absl::StatusOr<ClientPaths> paths = context_.Paths();
    if (!paths.ok()) return 0;
    const absl::StatusOr<PulledRecord::All> record =
        PulledRecord(paths->MirrorDir(row_.run_id)).ReadAll();
    if (!record.ok()) return 0;
    gpuctl::v1::ListArtifactsReply listed;
    listed.mutable_checkpoints()->Assign(checkpoints_.begin(), checkpoints_.end());
    const int64_t ended_ms = row_.end.has_value() ? row_.end->ended_ms : context_.NowMs();
    return FindMissing({}, listed, *record, ended_ms).checkpoints;
  }

  absl::Status BringAll() {
    std::vector<std::string> patterns = request_.patterns;
    const bool everything = patterns.empty() && request_.checkpoint.empty();
    if (everything) patterns = row_.artifact_patterns;
    if (everything || !request_.checkpoint.empty()) RETURN_IF_ERROR(Checkpoint(everything));
    absl::Status changed;
    const auto take = [&changed](const absl::Status& status) {
      // A file that changes does not keep others from coming.
      const bool goes_on = status.ok() || absl::IsAborted(status) || absl::IsDataLoss(status);
      if (goes_on) changed.Update(status);
      return goes_on ? absl::OkStatus() : status;
    };
    if (everything) RETURN_IF_ERROR(take(BesideCheckpoints()));
    for (const std::string& pattern : patterns) {
      RETURN_IF_ERROR(take(Files(pattern, !everything)));
    }
    // A machine that ends itself leaves no later chance.
    if (everything && row_.end.has_value() && limited_) changed.Update(Remains());
    RETURN_IF_ERROR(changed);
    if (!unreached_.empty()) {
      const std::string what = absl::StrCat(
          "the node cannot read these, or they are symlinks to files that cannot be "
          "brought through them: ",
          FirstFew({unreached_.begin(), unreached_.end()}));
      // The node must not take its results for home.
      if (everything) {
        return WithHint(absl::FailedPreconditionError(absl::StrCat("pull ", row_.name, ": ", what)),
                        absl::StrCat("gpuctl exec ", row_.name, " -- cp -L LINK COPY copies one"));
      }
      context_.Warn(what);
    }
    if (pulled_.checkpoints.empty() && pulled_.files.empty()) {
      if (row_.end.has_value() && calls_ != nullptr) {
        // The node refuses to look while somebody works in the job's directory.
        const absl::StatusOr<gpuctl::v1::RemoveJobReply> found =
            calls_->RemoveJob(row_.job_id, /*dry_run=*/true, ResultPatterns(row_));
        if (found.ok() && request_.undeclared && MayBringMade(*found)) return BringMade(*found);
        pulled_.nothing = found.ok() && found->left_count() == 0;
        if (found.ok()) return NothingToBring(row_, *found);
      }
      const absl::Status nothing =
          WithHint(absl::NotFoundError(absl::StrCat("pull ", row_.name, ": nothing to bring yet")),
                   absl::StrCat("name files of its work directory: gpuctl pull ", row_.name,
                                " 'outputs/**'"));
      // Of a job that is over, nobody has looked at what else it made.
      return row_.end.has_value() ? nothing : WithCause(nothing, kNothingToBring);
    }
    return absl::OkStatus();
  }

  // Brings what the checkpoint patterns match and the node lists as no checkpoint, as files: the
  // job may have ended while it wrote them.
  absl::Status Remains() {
    for (const std::string& pattern : row_.checkpoint_patterns) {
      const std::string whole(absl::StripSuffix(pattern, "/"));
      for (const std::string& files : {whole, absl::StrCat(whole, "/**")}) {
        ASSIGN_OR_RETURN(const gpuctl::v1::ListArtifactsReply reply, List(files, {}));
        std::vector<gpuctl::v1::Artifact> wanted;
        for (const gpuctl::v1::Artifact& file : reply.files()) {
          const bool of_checkpoint = std::any_of(
              checkpoints_.begin(), checkpoints_.end(),
              [&](const gpuctl::v1::CheckpointInfo& each) { return IsPartOf(file.path(), each); });
          if (!of_checkpoint && !IsTemporary(file.path()) && seen_.insert(file.path()).second)
            wanted.push_back(file);
        }
        if (wanted.empty()) continue;
        context_.Warn(absl::StrCat(pattern,
                                   " matches what may be no whole checkpoint: it comes as ",
                                   wanted.size() == 1 ? "a file" : "files"));
        RETURN_IF_ERROR(Bring(wanted, files));
      }
    }
    return absl::OkStatus();
  }

  // True when all that the job made is named and of a size that nobody needs to be asked about.
  static bool MayBringMade(const gpuctl::v1::RemoveJobReply& found) {
    return found.left_count() > 0 && found.left_count() == found.left_size() &&
           found.left_bytes() <= kMostUndeclaredBytes &&
           std::all_of(found.left().begin(), found.left().end(), [](const auto& file) {
             return absl::StartsWith(file.path(), "work/") && IsSafeRelativePath(file.path());
           });
  }

  // Brings all files that the job made.
  absl::Status BringMade(const gpuctl::v1::RemoveJobReply& found) {
    context_.Say(absl::StrCat(row_.name, " names no results that are there; bringing all that its ",
                              "job made"));
    return Bring({found.left().begin(), found.left().end()}, row_.name);
  }

  // Brings the job's files in $GPUCTL_CHECKPOINT_DIR that belong to no checkpoint.
  absl::Status BesideCheckpoints() {
    std::vector<gpuctl::v1::Artifact> wanted;
    for (const gpuctl::v1::Artifact& file : beside_) {
      if (row_.end.has_value() || !IsTemporary(file.path())) wanted.push_back(file);
    }
    if (wanted.empty()) return absl::OkStatus();
    return Bring(wanted, JoinPath(request_.to, kBesideCheckpoints), kBesideCheckpoints);
  }

  absl::Status Checkpoint(bool may_have_none) {
    ASSIGN_OR_RETURN(const gpuctl::v1::ListArtifactsReply reply,
                     List("", row_.checkpoint_patterns));
    checkpoints_.assign(reply.checkpoints().begin(), reply.checkpoints().end());
    beside_.assign(reply.files().begin(), reply.files().end());
    const std::vector<gpuctl::v1::CheckpointInfo>& checkpoints = checkpoints_;
    if (checkpoints.empty() && may_have_none) return absl::OkStatus();
    ASSIGN_OR_RETURN(const ClientPaths paths, context_.Paths());
    MirrorReader mirror(paths.MirrorDir(row_.run_id), row_.output_segment_bytes);
    RETURN_IF_ERROR(mirror.RefreshAll());
    ASSIGN_OR_RETURN(
        const gpuctl::v1::CheckpointInfo chosen,
        ChooseCheckpoint(checkpoints, request_.checkpoint.empty() ? "latest" : request_.checkpoint,
                         request_.best_by.value_or(mirror.progress().eval_losses())));
    RETURN_IF_ERROR(MakeDestination());
    ASSIGN_OR_RETURN(const std::string name, HomeName(chosen));
    const std::string path = JoinPath(request_.to, name);
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
    context_.Say(absl::StrCat(path, ": ", FormatBytes(chosen.size()),
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
    return wanted.empty() ? absl::OkStatus() : Bring(wanted, pattern);
  }

  // Brings these files of the work directory; `what` is named in the progress.
  absl::Status Bring(const std::vector<gpuctl::v1::Artifact>& wanted, const std::string& what) {
    return Bring(wanted, request_.to, what);
  }

  // Brings files that all lie in one directory of the job's to the same paths below `to`.
  absl::Status Bring(const std::vector<gpuctl::v1::Artifact>& wanted, const std::string& to,
                     const std::string& what) {
    RETURN_IF_ERROR(MakeDestination());
    PulledNames brought;
    if (sftp_ != nullptr) {
      RETURN_IF_ERROR(MakeDirectories(to, 0777));
      RETURN_IF_ERROR(CheckMayPull(context_, row_, wanted, to, request_.overwrite));
      RETURN_IF_ERROR(sftp_->BringFiles(wanted, to));
      for (const gpuctl::v1::Artifact& file : wanted) pulled_.bytes += file.size();
    } else {
      ASSIGN_OR_RETURN(brought, PullFiles(context_, links_, row_, wanted, to, Style(what)));
      pulled_.bytes += brought.bytes;
    }
    for (const gpuctl::v1::Artifact& file : wanted) Report(file, to, brought);
    if (brought.changed.empty()) return absl::OkStatus();
    const std::vector<std::string> changed(brought.changed.begin(), brought.changed.end());
    const std::string problem =
        absl::StrCat("pull ", row_.name, ": ", FirstFew(changed), " changed while ",
                     changed.size() == 1 ? "it was" : "they were", " being read, and did not come");
    if (brought.why_changed.ok()) return absl::AbortedError(problem);
    return absl::Status(brought.why_changed.code(),
                        absl::StrCat(problem, " (", brought.why_changed.message(), ")"));
  }

  // Tells what became of a file that was asked for and goes below `to`.
  void Report(const gpuctl::v1::Artifact& file, const std::string& to, const PulledNames& brought) {
    const std::string name = file.path().substr(file.path().find('/') + 1);
    if (brought.gone.count(name) > 0) {
      context_.Say(absl::StrCat(name, ": the job removed it meanwhile"));
      return;
    }
    if (brought.changed.count(name) > 0) return;
    const bool grew = brought.grown.count(name) > 0;
    // It may have grown since it was listed.
    const auto size = brought.sizes.find(name);
    const int64_t bytes = size != brought.sizes.end() ? size->second : file.size();
    pulled_.files.push_back({{"path", file.path()}, {"bytes", bytes}});
    if (grew) pulled_.files.back()["grew"] = true;
    // PullFiles wrote it there.
    context_.Say(
        absl::StrCat(JoinPath(to, name), ": ", FormatBytes(bytes),
                     brought.there.count(name) > 0 ? ", was here already" : "",
                     grew ? ", the beginning (the job appends to it)" : "",
                     brought.set_id.count(name) > 0 ? ", without its setuid and setgid" : "",
                     sftp_ == nullptr ? ", verified" : ", not verified"));
  }

  absl::StatusOr<gpuctl::v1::ListArtifactsReply> List(
      const std::string& pattern, const std::vector<std::string>& checkpoint_patterns) {
    gpuctl::v1::ListArtifactsReply reply;
    if (sftp_ != nullptr) {
      ASSIGN_OR_RETURN(reply, sftp_->List(pattern));
    } else {
      ASSIGN_OR_RETURN(reply, calls_->ListArtifacts(row_.job_id, pattern, checkpoint_patterns));
    }
    if (!reply.missing().empty() && !std::exchange(told_missing_, true)) {
      context_.Warn(absl::StrCat(row_.name, ": ", reply.missing()));
    }
    for (const std::string& path : reply.unreached()) {
      unreached_.emplace(absl::StripPrefix(path, "work/"));
    }
    // SFTP lists by all of the run's patterns.
    RETURN_IF_ERROR(CheckListing(
        pattern, sftp_ != nullptr ? row_.checkpoint_patterns : checkpoint_patterns, reply));
    return reply;
  }

  absl::StatusOr<bool> Bring(const gpuctl::v1::CheckpointInfo& chosen, const std::string& path) {
    if (sftp_ == nullptr) {
      return PullCheckpoint(context_, links_, row_, chosen, request_.to, Style(BaseName(path)));
    }
    if (PathExists(path)) return false;
    RETURN_IF_ERROR(sftp_->BringCheckpoint(chosen, request_.to));
    return true;
  }

  TransferStyle Style(std::string what) const {
    TransferStyle style;
    style.streams = request_.streams;
    style.overwrite = request_.overwrite;
    style.what = std::move(what);
    return style;
  }

  absl::Status MakeDestination() {
    return request_.own_directory ? MakeOwnDestination(request_.to) : absl::OkStatus();
  }

  CommandContext& context_;
  LinkFactory& links_;
  NodeCalls* calls_ = nullptr;
  SftpPull* sftp_ = nullptr;
  const RunRow& row_;
  const PullRequest& request_;
  std::set<std::string> seen_;
  std::set<std::string> unreached_;
  bool limited_ = false;
  bool told_missing_ = false;                            // the machine ends itself
  std::vector<gpuctl::v1::CheckpointInfo> checkpoints_;  // as listed
  std::vector<gpuctl::v1::Artifact> beside_;             // in ckpt/, but in no checkpoint
  std::optional<int64_t> step_;                          // step of the checkpoint that is home now
  PullResults pulled_;
};

absl::Status BringAll(CommandContext& context, LinkFactory& links, const RunRow& row,
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
  context.Say(absl::StrCat("the agent cannot run on ", row.target.name,
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

absl::Status BringResults(CommandContext& context, LinkFactory& links, const RunRow& row,
                          const PullRequest& request, PullResults& pulled) {
  Puller puller(context, links, row, request);
  const absl::Status status = BringAll(context, links, row, puller);
  pulled = puller.pulled();
  return ExplainPull(status, row);
}

}  // namespace gpuctl
