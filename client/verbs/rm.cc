// gpuctl rm: remove what finished runs left on their nodes.
#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/follow/members.h"
#include "client/keys/cluster_results.h"
#include "client/market/holdings.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/runs/context.h"
#include "client/streams/mirror.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/forget_batch.h"
#include "client/verbs/remove_runs.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "client/wishes/held_wish.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

// FAILED_PRECONDITION for a run that its launch may still bring to the node, or has just brought.
absl::Status CheckNoLaunch(CommandContext& context, RunStore& store, const RunRow& row) {
  if (row.accepted_ms > 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const bool locked, IsLocked(MirrorPaths(paths.MirrorDir(row.run_id)).lock));
  ASSIGN_OR_RETURN(const RunRow now, store.Get(row.run_id));
  if (now.end.has_value() || (!locked && now.accepted_ms == 0)) return absl::OkStatus();
  return WithHint(absl::FailedPreconditionError("it is being launched"),
                  absl::StrCat("gpuctl stop ", row.name, " ends the launch"));
}

// Makes sure that a run of which the node has nothing does not begin there later. A launch that was
// killed may have sent its request just before.
absl::Status KeepAway(NodeCalls& calls, const RunRow& row) {
  if (row.accepted_ms > 0 || row.end.has_value()) return absl::OkStatus();
  const absl::StatusOr<gpuctl::v1::Job> job = calls.StopJob(row.job_id, "user", row.node_id);
  if (job.ok()) return absl::FailedPreconditionError("it had just begun, and was told to stop");
  return absl::IsNotFound(job.status()) ? absl::OkStatus() : job.status();
}

// Takes the run's files from the node where it is. Then calls `after`, also where nothing was
// there, but not with `dry_run`.
RunRemoval RemoveThere(CommandContext& context, RunStore& store, const RunRow& row, bool force,
                       bool dry_run,
                       const std::function<absl::Status(NodeCalls& calls)>& after = nullptr) {
  RunRemoval removal;
  removal.row = row;
  const absl::StatusOr<std::unique_ptr<LinkFactory>> links = MakeLinks(context, row.target);
  removal.why = links.status();
  if (!links.ok()) return removal;
  absl::StatusOr<NodeCalls> calls = NodeCalls::Connect(context, **links, row.target);
  removal.why = calls.status();
  if (!calls.ok()) return removal;
  removal = JudgeRun(context, store, *calls, row, force);
  if (removal.outcome == RunRemoval::Outcome::kGone) {
    removal.why = CheckNoLaunch(context, store, row);
    if (removal.why.ok() && !dry_run) removal.why = KeepAway(*calls, row);
  } else if (!dry_run) {
    RemoveRun(*calls, removal);
  }
  if (removal.why.ok() && !dry_run && after) removal.why = after(*calls);
  return removal;
}

// Takes from the cluster what it kept of a run, whose allocation is over. Nothing of a run is left
// on other machines that were given back.
RunRemoval RemoveKeptOf(CommandContext& context, RunStore& store, const RunRow& row,
                        const Lease& lease, bool force, bool dry_run) {
  RunRemoval removal;
  removal.row = row;
  removal.outcome = RunRemoval::Outcome::kGone;
  if (row.target.provider != kClusterProvider || row.node_id.empty()) return removal;
  const absl::StatusOr<std::unique_ptr<ClusterResults>> cluster =
      ClusterResults::OfAllocation(context, row.target);
  removal.why = cluster.status();
  if (!cluster.ok() || *cluster == nullptr) return removal;
  ClusterResults& results = **cluster;
  const absl::StatusOr<std::vector<KeptResults>> found = results.Find(lease.label);
  if (!found.ok()) {
    removal.unasked = true;
    removal.why = WithHint(
        absl::UnavailableError(absl::StrCat(
            "what ", results.host(), " keeps of it may be there: ", found.status().message())),
        "gpuctl prune removes it when the login node answers");
    return removal;
  }
  if (found->empty()) return removal;
  if (!found->front().has_jobs) {
    if (!dry_run) removal.why = results.Remove(lease.label);
    return removal;
  }
  return RemoveThere(context, store, row, force, dry_run, [&](NodeCalls& calls) -> absl::Status {
    // The first node's jobs come last. Other runs may have used the allocation, too.
    if (!row.leader.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::vector<gpuctl::v1::Job> jobs, calls.ListJobs());
    return jobs.empty() ? results.Remove(lease.label) : absl::OkStatus();
  });
}

RunRemoval RemoveOne(CommandContext& context, Holdings& holdings, RunStore& store,
                     const RunRow& row, bool members_stay, bool force, bool dry_run) {
  RunRemoval removal;
  removal.row = row;
  removal.outcome = RunRemoval::Outcome::kGone;
  if (members_stay) {
    removal.why = absl::FailedPreconditionError(
        absl::StrCat("remove ", row.name, ": a part of it stays, so all of it does"));
    removal.outcome = RunRemoval::Outcome::kKept;
    return removal;
  }
  const absl::StatusOr<Ledger*> ledger = holdings.FindLedger();
  absl::StatusOr<std::optional<Lease>> lease = std::optional<Lease>();
  if (!ledger.ok()) {
    lease = ledger.status();
  } else if (*ledger != nullptr) {
    lease = LeaseOfPart(**ledger, row);
  }
  removal.why = lease.status();
  if (lease.ok() && lease->has_value() && !(*lease)->open()) {
    removal = RemoveKeptOf(context, store, row, **lease, force, dry_run);
  } else if (lease.ok()) {
    // A run that no node was ever asked to start left nothing.
    if (row.node_id.empty()) {
      removal.why = CheckNoLaunch(context, store, row);
    } else {
      removal = RemoveThere(context, store, row, force, dry_run);
    }
  }
  if (!removal.why.ok()) removal.outcome = RunRemoval::Outcome::kKept;
  return removal;
}

// Takes a run whose files are gone out of the list of runs.
absl::Status Forget(CommandContext& context, RunStore& store, const RunRemoval& removal) {
  const RunRow& row = removal.row;
  const bool gone = removal.outcome == RunRemoval::Outcome::kRemoved ||
                    removal.outcome == RunRemoval::Outcome::kGone || removal.unasked;
  if (!gone) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  const MirrorPaths mirror(paths.MirrorDir(row.run_id));
  // A launch holds the lock until it has ended, also before a node has accepted the job.
  RETURN_IF_ERROR(MakeDirectories(mirror.dir));
  const absl::StatusOr<UniqueFd> lock = TryLock(mirror.lock);
  if (absl::IsUnavailable(lock.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat("forget ", row.name, ": another gpuctl is at work with it"));
  }
  RETURN_IF_ERROR(lock.status());
  const absl::StatusOr<RunRow> found = store.Get(row.run_id);
  if (absl::IsNotFound(found.status())) return RemoveTree(mirror.dir);  // another rm was faster
  RETURN_IF_ERROR(found.status());
  const RunRow& stored = *found;
  if (!stored.end.has_value() && (stored.accepted_ms > 0 || !stored.node_id.empty())) {
    return WithHint(
        absl::FailedPreconditionError(absl::StrCat("forget ", row.name, ": it has not ended")),
        absl::StrCat("gpuctl attach ", row.name, " finds out how it ended"));
  }
  RETURN_IF_ERROR(DropWishesOf(context, row.run_id));
  RETURN_IF_ERROR(store.Delete(row.run_id));
  return RemoveTree(paths.MirrorDir(row.run_id));
}

// Refuses one machine's part of a run: without it the others would be counted anew.
absl::Status CheckNoPart(RunStore& store, const RunRow& row) {
  if (row.leader.empty()) return absl::OkStatus();
  const absl::StatusOr<RunRow> whole = store.Get(row.leader);
  if (!whole.ok()) return absl::OkStatus();  // it is not in the list any more
  return UsageError(absl::StrCat(row.name, " is a part of ", whole->name,
                                 ", and goes out of the list with all of it"),
                    absl::StrCat("gpuctl rm --forget ", whole->name));
}

}  // namespace

absl::StatusOr<int> CmdRm(CommandContext& context, std::vector<std::string> args) {
  std::vector<std::string> references;
  bool force = false, dry_run = false, forget = false, yes = false;
  VerbParser parser(
      context, "rm RUN... [FLAGS]",
      "Removes what ended runs left on their machines: work directory, checkpoints, output,\n"
      "also what a cluster keeps of an allocation that is over. The copy of their output and\n"
      "metrics stays here, and ps -a still lists them, unless you say --forget. Refuses a run\n"
      "that has not ended, and one that is not completely at home. With --forget and the name\n"
      "of a batch that is over, the batch goes too, and its name is free again.",
      "  gpuctl rm --dry-run amber-fox-3    only say what it would free\n"
      "  gpuctl rm --forget sweep           a batch that is over, and all its runs\n"
      "  gpuctl prune                       all runs that have ended");
  parser.Option("RUN", references, "Name, id, or the beginning of one; a batch: all its runs")
      .Required();
  parser.Switch("-f,--force", force, "Remove also what is not at home; asks nothing");
  parser.Switch("--forget", forget, "Take it out of ps -a too, with the copy of its output here");
  parser.Switch("--dry-run", dry_run, "Only say what it would free");
  parser.Switch("-y,--yes", yes, "Do not ask before a batch is forgotten");
  parser.Quiet("Print nothing; with --dry-run the names of the runs");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  Holdings holdings(context);
  std::vector<RunRow> rows;
  std::vector<ForgottenBatch> batches;
  if (forget) {
    ASSIGN_OR_RETURN(batches, TakeBatchesToForget(context, holdings, references));
    for (const ForgottenBatch& one : batches) {
      references.insert(references.end(), one.run_ids.begin(), one.run_ids.end());
    }
    if (!yes && !force && !dry_run) RETURN_IF_ERROR(AgreeToForget(context, batches));
  }
  // Of a batch its newest run alone would be a surprise.
  ASSIGN_OR_RETURN(references, WithRunsOfBatches(context, references));
  std::set<std::string> named;  // ids of runs
  for (const std::string& reference : references) {
    ASSIGN_OR_RETURN(RunRow row, store->Get(reference));
    if (!named.insert(row.run_id).second) continue;
    if (forget) RETURN_IF_ERROR(CheckNoPart(*store, row));
    // The run itself comes last: without it nobody would find its members.
    ASSIGN_OR_RETURN(const std::vector<RunRow> members, store->Members(row.run_id));
    rows.insert(rows.end(), members.begin(), members.end());
    rows.push_back(std::move(row));
  }
  std::vector<RunRemoval> removals;
  std::set<std::string> needed;  // ids of runs with a member that stays
  int code = kExitOk;
  for (const RunRow& row : rows) {
    const bool members_stay = needed.count(row.run_id) > 0;
    removals.push_back(RemoveOne(context, holdings, *store, row, members_stay, force, dry_run));
    if (forget && !dry_run && (removals.back().why.ok() || removals.back().unasked)) {
      const absl::Status forgotten =
          members_stay ? absl::FailedPreconditionError(
                             absl::StrCat("forget ", row.name, ": a part of it stays in the list"))
                       : Forget(context, *store, removals.back());
      // What is left of a run that goes is told all the same.
      if (!forgotten.ok()) removals.back().why = forgotten;
    }
    if (!removals.back().why.ok()) needed.insert(row.leader);
    if (code == kExitOk && !removals.back().why.ok()) code = ExitCodeOf(removals.back().why);
  }
  for (ForgottenBatch& one : batches) {
    dry_run ? JudgeBatch(removals, one) : ForgetBatch(context, *store, one);
    if (code == kExitOk && !one.why.ok()) code = ExitCodeOf(one.why);
  }
  const nlohmann::ordered_json more = {{"batches", ForgottenToJson(batches, dry_run)}};
  PrintRemovals(context, removals, dry_run, batches.empty() ? nullptr : &more);
  const bool not_home = std::any_of(removals.begin(), removals.end(), [](const RunRemoval& one) {
    return !one.why.ok() && !one.missing.empty();
  });
  TellOfForgotten(context, batches, dry_run, not_home);
  return code;
}

}  // namespace gpuctl
