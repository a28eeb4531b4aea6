#include "client/verbs/sync_run.h"

#include <fcntl.h>

#include <algorithm>
#include <csignal>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/base/wake_pipe.h"
#include "client/ignore/ignore_rules.h"
#include "client/node/explain_error.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/terminal/console.h"
#include "client/terminal/shown_name.h"
#include "client/transfer/transfer_interrupt.h"
#include "client/transfer/tree_transfer.h"
#include "client/verbs/batch_text.h"
#include "client/workdir/data_trees.h"
#include "client/workdir/workdir.h"
#include "common/base/ids.h"
#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/job/job_layout.h"
#include "common/process/signal_pipe.h"
#include "common/transfer/transfer.h"

namespace gpuctl {
namespace {

using gpuctl::v1::MergeReport;

constexpr absl::Duration kWatchEvery = absl::Milliseconds(500);
constexpr int kNamed = 5;
// A file that is written all the time rests at the scan by chance, and changes before it is sent.
constexpr int kMostTries = 5;

std::string Files(int64_t count) { return absl::StrCat(count, count == 1 ? " file" : " files"); }

absl::Status EndedError(const RunRow& row) {
  return WithHint(
      absl::AbortedError(absl::StrCat("sync ", row.name, ": it has ended, and nothing was sent")),
      absl::StrCat("gpuctl launch --like ", row.name,
                   " starts it again, with the work directory as it is now"));
}

class Syncer {
 public:
  Syncer(CommandContext& context, const SyncRunFlags& flags, RunRow row,
         std::unique_ptr<LinkFactory> links, std::vector<std::string> data_paths,
         std::string digest_file)
      : context_(context),
        flags_(flags),
        row_(std::move(row)),
        links_(std::move(links)),
        data_paths_(std::move(data_paths)),
        digest_file_(std::move(digest_file)) {}

  // Scans the work directory, and sends what changed. A file may have changed without a sign: then
  // reads all files, and tries again.
  absl::Status Sync() {
    absl::Status status = Once();
    for (int tries = 1; tries < kMostTries && FaultOf(status) == LinkFault::kFileChanged; ++tries) {
      status = Once();
    }
    return status;
  }

  // Returns an error, which no later try changes, for a run that has ended: nobody would use what
  // is sent. A node that does not answer is no reason: the transfer says so.
  absl::Status CheckIsLive() const {
    const absl::StatusOr<std::unique_ptr<LinkFactory>> links = MakeLinks(context_, row_.target);
    if (!links.ok()) return absl::OkStatus();
    absl::StatusOr<NodeCalls> calls = NodeCalls::Connect(context_, **links, row_.target);
    if (!calls.ok()) return absl::OkStatus();
    const absl::StatusOr<gpuctl::v1::HelloReply> hello = calls->Hello({row_.job_id});
    if (!hello.ok()) return absl::OkStatus();
    for (const gpuctl::v1::Job& job : hello->jobs()) {
      const bool over = job.state() == gpuctl::v1::JOB_STATE_FINISHED ||
                        job.state() == gpuctl::v1::JOB_STATE_LOST;
      if (job.job_id() == row_.job_id && over) return EndedError(row_);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Once() {
    // Connect while the directory is scanned.
    std::future<absl::StatusOr<TransferStream>> opening;
    if (!flags_.watch || first_) {
      opening = std::async(std::launch::async, [this] { return OpenReceiver(*links_); });
    }
    std::future<absl::Status> live;
    if (first_) live = std::async(std::launch::async, [this] { return CheckIsLive(); });
    absl::StatusOr<Workdir> workdir = Scan();
    absl::StatusOr<TransferStream> stream;
    if (opening.valid()) stream = opening.get();
    RETURN_IF_ERROR(workdir.status());
    if (!first_ && workdir->digest == digest_) return absl::OkStatus();
    RETURN_IF_ERROR(live.valid() ? live.get() : CheckIsLive());
    RETURN_IF_ERROR(AgreeToRemove(*workdir));
    if (!opening.valid() && !first_) stream = OpenReceiver(*links_);
    if (!stream.ok()) return ExplainLinkError(stream.status(), row_.target);
    PushTarget target;
    target.job_id = row_.job_id;
    target.likely_there = workdir->digest == LastDigest();
    target.stays = [this, &workdir](const std::string& path, bool is_directory) {
      return IsLeftOut(*workdir, path, is_directory);
    };
    TransferStyle style;
    style.streams = flags_.streams;
    style.what = "sync";
    const absl::StatusOr<PushOutcome> outcome = PushOn(
        context_, *links_, *std::move(stream), workdir->path, workdir->manifest, target, style);
    if (!outcome.ok()) return ExplainFullNode(outcome.status(), row_.target);
    first_ = false;
    digest_ = workdir->digest;
    RememberDigest();
    Report(*outcome, *workdir);
    if (workdir->changed.empty()) return absl::OkStatus();
    return WithHint(
        absl::FailedPreconditionError(absl::StrCat(
            "sync ", row_.name, ": not sent, because it changed while it was being read: ",
            FirstFew(workdir->changed))),
        "leave these files alone for a moment and try again");
  }

  // True when the path stays with the job although the scan did not find it: a rule leaves it out,
  // or it was being changed. Paths that cannot be judged stay.
  bool IsLeftOut(const Workdir& workdir, const std::string& path, bool is_directory) {
    if (std::find(workdir.changed.begin(), workdir.changed.end(), path) != workdir.changed.end()) {
      return true;
    }
    for (const std::string& data : data_paths_) {
      if (path == data || absl::StartsWith(path, absl::StrCat(data, "/"))) return true;
    }
    if (rules_of_ != workdir.digest) {
      rules_ = LoadWorkdirRules(workdir.path, flags_.include);
      rules_of_ = workdir.digest;
    }
    return !rules_.ok() || rules_->Decide(path, is_directory).excluded;
  }

  // Asks before a sync that removes what the job has because another directory lacks it: one that
  // was named for this sync, or the run's own without a file in it (a disk that is not mounted).
  absl::Status AgreeToRemove(const Workdir& workdir) {
    const bool empty = workdir.manifest.size() == 0;
    const bool other = !row_.workdir.empty() && workdir.path != row_.workdir;
    if (flags_.yes || agreed_ || (!empty && !other)) return absl::OkStatus();
    const std::string what =
        empty ? absl::StrCat(workdir.path, " has nothing to send (is its disk mounted?)")
              : absl::StrCat(row_.name, " was launched from ", row_.workdir);
    ASSIGN_OR_RETURN(
        agreed_, context_.AskYesNo(
                     absl::StrCat(what, ". Remove from the job what is not in ", workdir.path, "?"),
                     "nothing was sent or removed",
                     absl::StrCat("sync ", row_.name, ": ", what,
                                  "; what is not there would be removed from the job")));
    if (agreed_) return absl::OkStatus();
    return WithExitCode(absl::CancelledError(absl::StrCat("sync ", row_.name, ": not agreed to")),
                        kExitUsage);
  }

  absl::StatusOr<Workdir> Scan() {
    WorkdirOptions options;
    options.read_all = flags_.checksum && first_;
    options.allow_large = flags_.yes;
    options.leave_changed = true;
    options.include = flags_.include;
    options.leave_out = data_paths_;
    options.told = &told_;
    return ScanWorkdir(context_, flags_.workdir.empty() ? row_.workdir : flags_.workdir, options);
  }

  // Stores the digest, without fsync or a check of errors: losing it costs only a round trip.
  void RememberDigest() const {
    const std::string temporary = absl::StrCat(digest_file_, ".", RandomHex(8));
    (void)MakeDirectories(DirName(digest_file_));
    const UniqueFd fd(file_ops::Open(temporary, O_WRONLY | O_CREAT | O_EXCL));
    if (fd.valid() && WriteAll(fd.get(), digest_, temporary).ok()) {
      (void)file_ops::Rename(temporary, digest_file_);
    }
  }

  std::string LastDigest() const { return ReadFileToString(digest_file_).value_or(""); }

  void Report(const PushOutcome& outcome, const Workdir& workdir) {
    const MergeReport& merge = outcome.merge;
    if (context_.json()) {
      nlohmann::ordered_json json;
      json["run_id"] = row_.run_id;
      json["name"] = row_.name;
      json["written"] = merge.written();
      json["removed"] = merge.removed();
      json["kept"] = nlohmann::ordered_json::array();
      for (const std::string& path : merge.kept()) json["kept"].push_back(path);
      json["kept_count"] = merge.kept_count();
      json["bytes_sent"] = outcome.sent.bytes;
      json["grew"] = workdir.grown;
      context_.PrintJson(json);
      return;
    }
    const bool nothing = merge.written() == 0 && merge.removed() == 0;
    context_.Say(nothing ? absl::StrCat(row_.name, ": nothing to send")
                         : absl::StrCat(row_.name, ": ", Files(merge.written()), " written, ",
                                        merge.removed(), " removed, ",
                                        FormatBytes(outcome.sent.bytes), " sent"));
    if (merge.kept_count() == 0) return;
    std::vector<std::string> named(merge.kept().begin(),
                                   merge.kept().begin() + std::min(kNamed, merge.kept_size()));
    const int64_t more = merge.kept_count() - static_cast<int64_t>(named.size());
    context_.Warn(absl::StrCat("kept as the job changed it: ", absl::StrJoin(named, ", "),
                               more > 0 ? absl::StrCat(" and ", more, " more") : ""));
    context_.Hint(absl::StrCat("gpuctl cp FILE ", row_.name, ":FILE replaces one all the same"));
  }

  CommandContext& context_;
  const SyncRunFlags& flags_;
  const RunRow row_;
  const std::unique_ptr<LinkFactory> links_;
  const std::vector<std::string> data_paths_;
  const std::string digest_file_;  // holds the digest of the last sync of this run
  bool first_ = true;
  bool agreed_ = false;  // to remove what the directory lacks
  std::string digest_;
  std::string told_;  // the last remarks about files that are not sent
  absl::StatusOr<IgnoreRules> rules_ = absl::NotFoundError("not read yet");
  std::string rules_of_;  // the digest of the scan for which they were read
};

absl::Status Watch(CommandContext& context, Syncer& syncer) {
  ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGINT, SIGTERM, SIGHUP}));
  context.Say("watching; Ctrl-C ends it");
  bool reachable = true;
  while (true) {
    WaitForNews({}, signals, kWatchEvery);
    if (!signals.Take().empty()) return absl::OkStatus();
    const absl::Status status = syncer.Sync();
    // Go on after the laptop slept, or when a file is just being written.
    const bool passing = absl::IsUnavailable(status) || absl::IsFailedPrecondition(status);
    if (!status.ok() && !passing) return status;
    if (!status.ok() && reachable) {
      context.Warn(absl::StrCat(status.message(), "; trying again"));
    }
    reachable = status.ok();
  }
}

}  // namespace

absl::StatusOr<int> SyncRun(CommandContext& context, const SyncRunFlags& flags) {
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  RETURN_IF_ERROR(
      CheckNoBatch(context, {flags.reference}, "gpuctl sync $-1 sends changes to one run"));
  ASSIGN_OR_RETURN(RunRow row, store->Get(flags.reference));
  if (row.end.has_value()) return EndedError(row);
  if (flags.workdir.empty() && row.workdir.empty()) {
    return UsageError(absl::StrCat("sync ", row.name, ": it was launched without a work directory"),
                      "--workdir DIR names one to send");
  }
  ASSIGN_OR_RETURN(std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const StoredSpec stored, ParseStoredSpec(row.spec_json));
  Syncer syncer(context, flags, row, std::move(links), PathsOfData(stored.spec),
                JoinPath(JoinPath(paths.cache_dir, "synced"), row.run_id));
  {
    ASSIGN_OR_RETURN(
        const auto interrupt,
        TransferInterrupt::Install(
            context, absl::StrCat("sync ", row.name),
            absl::StrCat("the job has its files as they were, or some of them as they are here; ",
                         "what was sent is kept on ", row.target.name),
            absl::StrCat("gpuctl sync ", row.name, " goes on with the rest")));
    RETURN_IF_ERROR(syncer.Sync());
  }
  if (flags.watch) RETURN_IF_ERROR(Watch(context, syncer));
  return kExitOk;
}

}  // namespace gpuctl
