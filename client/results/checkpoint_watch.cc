#include "client/results/checkpoint_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/home/checkpoint_keep.h"
#include "client/home/other_parts.h"
#include "client/node/listing.h"
#include "client/node/tell_node.h"
#include "client/results/checkpoint_choice.h"
#include "client/results/pull_files.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

using gpuctl::v1::CheckpointInfo;

constexpr absl::Duration kFirstWait = absl::Seconds(2);
constexpr absl::Duration kLongestWait = absl::Minutes(1);
// Number of failures in a row, after the job's end, after which the watch gives up.
constexpr int kLastTrials = 4;

}  // namespace

absl::StatusOr<int> ParseKeep(const std::string& text, const char* flag) {
  int keep = 0;
  if (text.empty() || text == "true") return keep;
  if (absl::SimpleAtoi(text, &keep) && keep > 0) return keep;
  return UsageError(absl::StrCat(flag, "=", text, ": not a number of checkpoints to keep"),
                    absl::StrCat("for example: ", flag, "=2"));
}

absl::StatusOr<std::optional<CheckpointWatchOptions>> ParsePullFlag(const std::string& text,
                                                                    const std::string& run_name) {
  if (text.empty()) return std::optional<CheckpointWatchOptions>();
  CheckpointWatchOptions options;
  ASSIGN_OR_RETURN(options.keep, ParseKeep(text, "--pull"));
  options.to = absl::StrCat("./", run_name);
  options.own_directory = true;
  return std::make_optional(std::move(options));
}

CheckpointWatch::CheckpointWatch(CommandContext& context, const RunRow& row,
                                 std::unique_ptr<LinkFactory> links, CheckpointWatchOptions options)
    : context_(context),
      row_(row),
      links_(std::move(links)),
      options_(std::move(options)),
      backoff_(kFirstWait, kLongestWait),
      worker_(context.clock) {}

CheckpointWatch::~CheckpointWatch() { (void)Cancel(absl::ZeroDuration()); }

absl::Status CheckpointWatch::Start() {
  ASSIGN_OR_RETURN(const ClientPaths paths, context_.Paths());
  record_ = std::make_unique<PulledRecord>(paths.MirrorDir(row_.run_id));
  return worker_.Start([this] { Run(); });
}

void CheckpointWatch::RunIsOver() {
  MutexLock lock(mutex_);
  over_ = true;
  changed_.NotifyAll();
}

bool CheckpointWatch::Cancel(absl::Duration patience) {
  {
    MutexLock lock(mutex_);
    cancelled_ = true;
    changed_.NotifyAll();
  }
  return worker_.Finish(patience);
}

void CheckpointWatch::Tell(std::string notice) {
  worker_.Update([&](News& news) { news.notices.push_back(std::move(notice)); });
  worker_.Wake();
}

bool CheckpointWatch::over() {
  MutexLock lock(mutex_);
  return over_;
}

bool CheckpointWatch::cancelled() {
  MutexLock lock(mutex_);
  return cancelled_;
}

// Tells a failure. Tells the same notice once, until something else happens.
void CheckpointWatch::Fail(const absl::Status& status) {
  std::string notice =
      absl::StrCat("checkpoints do not come home: ", status.message(), "; trying again");
  if (notice == told_failure_) return;
  told_failure_ = notice;
  Tell(std::move(notice));
}

void CheckpointWatch::Run() {
  int failures = 0;
  while (!cancelled()) {
    // Read this before the look: if the job ends during it, one more look follows.
    const bool last = over();
    const absl::StatusOr<bool> more = Look();
    absl::Duration wait = kCheckpointLookEvery;
    if (more.ok()) {
      failures = 0;
      backoff_.Reset();
      told_failure_.clear();
      if (*more) continue;
      if (last) {
        const bool all = AllIsHome();
        // Where nothing was listed on a machine without limits, nobody has looked for other files.
        if (all && (limited_ || !none_listed_)) (void)record_->NoteAllHome(context_.NowMs());
        TellNode(all && OthersAreHome());
        break;
      }
      if (options_.once) break;
    } else {
      if ((last || options_.once) && ++failures >= kLastTrials) {
        Tell(absl::StrCat("checkpoints did not all come home: ", more.status().message(),
                          "; gpuctl pull ", row_.name, " tries again"));
        worker_.Update([&](News& news) { news.missed.Update(more.status()); });
        break;
      }
      Fail(more.status());
      calls_.reset();
      wait = backoff_.Next();
    }
    const absl::Duration end = context_.clock.SinceBoot() + wait;
    MutexLock lock(mutex_);
    // The job's end ends a wait early, but not the waits after it.
    while (!cancelled_ && !(over_ && !last)) {
      const absl::Duration left = end - context_.clock.SinceBoot();
      if (left <= absl::ZeroDuration()) break;
      changed_.WaitFor(mutex_, left);
    }
  }
}

bool CheckpointWatch::Wanted(const std::vector<PulledItem>& items,
                             const CheckpointInfo& checkpoint) {
  const absl::StatusOr<std::string> name = HomeName(checkpoint);
  if (!name.ok()) return false;
  if (given_up_.count(absl::StrCat(checkpoint.path(), ":", checkpoint.modified_ms())) > 0) {
    return false;
  }
  const absl::StatusOr<std::string> to = AbsolutePath(options_.to);
  return !to.ok() || !IsHome(items, checkpoint, JoinPath(*to, *name));
}

absl::StatusOr<bool> CheckpointWatch::Look() {
  if (calls_ == nullptr) {
    ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context_, *links_, row_.target));
    ASSIGN_OR_RETURN(const gpuctl::v1::HelloReply node, calls.Hello());
    limited_ = node.has_limits();
    calls_ = std::make_unique<NodeCalls>(std::move(calls));
  }
  ASSIGN_OR_RETURN(gpuctl::v1::ListArtifactsReply reply,
                   calls_->ListArtifacts(row_.job_id, "", row_.checkpoint_patterns));
  RETURN_IF_ERROR(CheckListing("", row_.checkpoint_patterns, reply));
  if (!reply.unreached().empty() && !unreached_) {
    Tell(absl::StrCat(reply.unreached(0),
                      " cannot be brought: it is a symlink, or the node cannot "
                      "read it"));
  }
  unreached_ = !reply.unreached().empty();
  none_listed_ = reply.checkpoints().empty();
  files_listed_ = !reply.files().empty();
  const std::vector<CheckpointInfo> listed(reply.checkpoints().begin(), reply.checkpoints().end());
  ASSIGN_OR_RETURN(const std::vector<PulledItem> items, record_->Read());
  const CheckpointInfo* next =
      NextToBring(listed, options_.keep,
                  [&](const CheckpointInfo& checkpoint) { return Wanted(items, checkpoint); });
  if (next == nullptr) return false;
  return Bring(*next);
}

absl::StatusOr<bool> CheckpointWatch::Bring(const CheckpointInfo& checkpoint) {
  if (options_.own_directory) RETURN_IF_ERROR(MakeOwnDestination(options_.to));
  TransferStyle style;
  style.quiet = true;
  style.streams = options_.streams;
  const absl::StatusOr<bool> brought =
      PullCheckpoint(context_, *links_, row_, checkpoint, options_.to, style);
  if (absl::IsUnavailable(brought.status())) return brought.status();
  // It was written or removed meanwhile; the next look lists it again.
  if (absl::IsAborted(brought.status()) || absl::IsNotFound(brought.status())) return false;
  ASSIGN_OR_RETURN(const std::string name, HomeName(checkpoint));
  if (!brought.ok()) {
    given_up_.insert(absl::StrCat(checkpoint.path(), ":", checkpoint.modified_ms()));
    missed_ = true;
    worker_.Update([&](News& news) {
      news.missed.Update(Annotate(brought.status(), absl::StrCat(name, " is not home")));
    });
    Tell(absl::StrCat(name, " does not come home: ", brought.status().message()));
    return true;
  }
  if (*brought) {
    const std::string path = JoinPath(options_.to, name);
    worker_.Update([&](News& news) {
      news.brought.push_back({path, checkpoint.step(),
                              checkpoint.kind() == CheckpointInfo::KIND_FOREIGN,
                              checkpoint.size()});
      news.notices.push_back(
          absl::StrCat(path, ": ", FormatBytes(checkpoint.size()), ", verified"));
    });
  } else {
    // An existing copy is now recorded; once is enough.
    given_up_.insert(absl::StrCat(checkpoint.path(), ":", checkpoint.modified_ms()));
  }
  worker_.Wake();
  RETURN_IF_ERROR(Prune());
  if (checkpoint.kind() == CheckpointInfo::KIND_TRAINER) {
    step_ = std::max(step_.value_or(checkpoint.step()), checkpoint.step());
    TellNode(false);
  }
  return true;
}

bool CheckpointWatch::AllIsHome() {
  if (missed_ || unreached_ || files_listed_ || !row_.artifact_patterns.empty()) return false;
  if (!none_listed_ || !limited_ || calls_ == nullptr) return true;
  const absl::StatusOr<gpuctl::v1::RemoveJobReply> found =
      calls_->RemoveJob(row_.job_id, /*dry_run=*/true, row_.checkpoint_patterns);
  return found.ok() && found->left_count() == 0;
}

// The first node of an allocation ends all of them.
bool CheckpointWatch::OthersAreHome() {
  if (!row_.leader.empty()) return true;
  const absl::StatusOr<ClientPaths> paths = context_.Paths();
  return paths.ok() && FindOtherParts(*paths, row_).all_home;
}

void CheckpointWatch::TellNode(bool all) {
  if (!limited_ || calls_ == nullptr || (!all && !step_.has_value())) return;
  const absl::Status told = TellHome(*calls_, row_, step_, all).status();
  if (!told.ok()) Tell(absl::StrCat("the node keeps its results: ", told.message()));
}

absl::Status CheckpointWatch::Prune() {
  ASSIGN_OR_RETURN(const std::string to, AbsolutePath(options_.to));
  ASSIGN_OR_RETURN(const std::vector<PulledItem> items, record_->Read());
  for (const PulledItem& item : ToRemove(items, to, options_.keep)) {
    // Record first: then a crash leaves no record of a missing checkpoint.
    RETURN_IF_ERROR(record_->AppendRemoved(item.path, context_.NowMs()));
    ASSIGN_OR_RETURN(const std::string aside, MoveAside(item.path));
    RETURN_IF_ERROR(RemoveTree(aside));
  }
  return RemoveAsides(to);
}

}  // namespace gpuctl
