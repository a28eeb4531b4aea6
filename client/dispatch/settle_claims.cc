#include "client/dispatch/settle_claims.h"

#include <sys/stat.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/follow/stop_run.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/runs/run_end.h"
#include "client/streams/ask_job.h"
#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/transfer/error_detail.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kAskPatience = absl::Seconds(10);
constexpr absl::Duration kTurnsEndWithin = absl::Seconds(5);
constexpr absl::Duration kLookAtTurnsEvery = absl::Milliseconds(20);
constexpr char kCutShort[] = "the gpuctl that was starting it ended";

bool NeverStarted(const RunRow& row) {
  return row.end.has_value() && row.end->state == gpuctl::v1::JOB_STATE_UNSPECIFIED;
}

// Records that the run never started, for `ps`.
absl::Status EndRun(CommandContext& context, RunStore& runs, const RunRow& row) {
  if (row.end.has_value()) return absl::OkStatus();
  RunEnd end;
  end.source = EndSource::kGpuctl;
  end.exit_code = kExitFailed;
  end.reason = kCutShort;
  end.ended_ms = context.NowMs();
  return runs.SetEnd(row.run_id, end);
}

// Asks the node that was asked to start the run. True when it has it. After false it never will.
absl::StatusOr<bool> NodeHasRun(CommandContext& context, RunStore& runs, const RunRow& row) {
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  absl::StatusOr<std::unique_ptr<Link>> link = links->ConnectForCalls();
  const LinkFault fault = FaultOf(link.status());
  // A machine that is gone starts nothing.
  if (fault == LinkFault::kReleased || fault == LinkFault::kPreempted) return false;
  RETURN_IF_ERROR(link.status());
  const absl::StatusOr<JobAnswer> answer = AskJob(**link, row.job_id, {}, kAskPatience);
  if (answer.ok()) {
    // Another node in the place of that one has nothing of it.
    if (answer->heartbeat.node_id() != row.node_id) return false;
    RETURN_IF_ERROR(runs.SetAccepted(row.run_id, row.node_id, context.NowMs()));
    return true;
  }
  if (!absl::IsNotFound(answer.status())) return answer.status();
  // The request to start it may still be on its way; the node refuses it from now on.
  ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context, *links, row.target));
  const absl::Status stopped = calls.StopJob(row.job_id, kStartsAgainReason, row.node_id).status();
  if (absl::IsNotFound(stopped) ||
      DetailOf(stopped).kind() == gpuctl::v1::ErrorDetail::KIND_NODE_CHANGED) {
    return false;
  }
  RETURN_IF_ERROR(stopped);
  // It came in this moment, and is being stopped. Its end tells that it starts again.
  RETURN_IF_ERROR(runs.SetAccepted(row.run_id, row.node_id, context.NowMs()));
  return true;
}

// Returns the names in `dir` of files that nobody has changed for a while. Younger ones may belong
// to a process that has just begun.
std::vector<std::string> OldFiles(const std::string& dir, int64_t now_ms) {
  constexpr int64_t kLeftMs = 60'000;
  std::vector<std::string> old;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(dir);
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
    struct stat info {};
    if (lstat(JoinPath(dir, name).c_str(), &info) != 0) continue;
    if (now_ms - ModifiedMs(info) >= kLeftMs) old.push_back(name);
  }
  return old;
}

// Removes the locks that processes left that were killed after their entry was settled.
void RemoveLeftLocks(const std::string& state_dir, int64_t now_ms) {
  const std::string dir = DirName(EntryLockPath(state_dir, ""));
  for (const std::string& name : OldFiles(dir, now_ms)) {
    const std::string path = JoinPath(dir, name);
    if (!absl::StartsWith(path, EntryLockPath(state_dir, ""))) continue;
    absl::StatusOr<UniqueFd> lock = TryRemovableLock(path);
    if (lock.ok()) RemoveLock(*std::move(lock), path);
  }
}

// Removes the logs that such processes left, and those of entries that are over: why one failed is
// in the list of batches.
void RemoveLeftLogs(const std::string& state_dir, BatchStore& batches, int64_t now_ms) {
  const std::string dir = DirName(EntryLogPath(state_dir, ""));
  for (const std::string& name : OldFiles(dir, now_ms)) {
    const std::string entry_id(absl::StripSuffix(name, ".log"));
    if (EntryLogPath(state_dir, entry_id) != JoinPath(dir, name)) continue;
    const absl::StatusOr<std::optional<Entry>> entry = batches.FindEntry(entry_id);
    if (!entry.ok()) return;
    const bool open = entry->has_value() && ((*entry)->state == EntryState::kWaiting ||
                                             (*entry)->state == EntryState::kStarting);
    if (!open) (void)file_ops::Unlink(JoinPath(dir, name));
  }
}

}  // namespace

namespace {

// Records that a node has the entry's run, and stops it if somebody wished that meanwhile. After an
// error the claim is settled again.
absl::Status MarkStarted(CommandContext& context, RunStore& runs, BatchStore& batches,
                         const Entry& entry) {
  const auto stop = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(RunRow row, runs.Get(entry.run_id));
    return StopRun(context, runs, row, /*wait=*/false);
  };
  ASSIGN_OR_RETURN(const bool wished, batches.IsStopWished(entry.run_id));
  if (wished) RETURN_IF_ERROR(stop());
  RETURN_IF_ERROR(batches.MarkStarted(entry.entry_id, entry.run_id));
  if (wished) return absl::OkStatus();
  // From here on nobody can wish it any more.
  ASSIGN_OR_RETURN(const bool wished_meanwhile, batches.IsStopWished(entry.run_id));
  return wished_meanwhile ? stop() : absl::OkStatus();
}

}  // namespace

std::string TurnLockPath(absl::string_view state_dir, absl::string_view entry_id) {
  return EntryLockPath(state_dir, absl::StrCat(entry_id, ".turn"));
}

absl::Status TakeTurnsBack(CommandContext& context, BatchStore& batches,
                           absl::string_view batch_id) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  std::set<std::string> taken;
  const absl::Duration end = context.clock.SinceBoot() + kTurnsEndWithin;
  while (true) {
    ASSIGN_OR_RETURN(const std::vector<Entry> entries, batches.Entries(batch_id));
    bool any = false;
    for (const Entry& entry : entries) {
      if (entry.state != EntryState::kWaiting) continue;
      const std::string turn = TurnLockPath(paths.state_dir, entry.entry_id);
      if (IsLocked(turn).value_or(false)) {
        (void)file_ops::Unlink(turn);
        taken.insert(entry.entry_id);
      }
      any = any || (taken.count(entry.entry_id) > 0 &&
                    IsLocked(EntryLockPath(paths.state_dir, entry.entry_id)).value_or(false));
    }
    if (!any || context.clock.SinceBoot() >= end) return absl::OkStatus();
    context.clock.SleepFor(kLookAtTurnsEvery);
  }
}

absl::Status SettleClaim(CommandContext& context, RunStore& runs, BatchStore& batches,
                         const Entry& entry) {
  const auto wait_again = [&] {
    return batches.Release(entry.entry_id, entry.run_id, kCutShort, 0, /*failed=*/false);
  };
  const absl::StatusOr<RunRow> row = runs.Get(entry.run_id);
  if (absl::IsNotFound(row.status())) return wait_again();
  RETURN_IF_ERROR(row.status());
  if (row->accepted_ms > 0 || (row->end.has_value() && !NeverStarted(*row))) {
    return MarkStarted(context, runs, batches, entry);
  }
  bool has_run = false;
  if (!row->node_id.empty()) {
    ASSIGN_OR_RETURN(has_run, NodeHasRun(context, runs, *row));
  }
  if (has_run) return MarkStarted(context, runs, batches, entry);
  RETURN_IF_ERROR(EndRun(context, runs, *row));
  return wait_again();
}

absl::Status SettleClaims(CommandContext& context, RunStore& runs, BatchStore& batches) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const std::vector<Entry> starting, batches.Starting());
  for (const Entry& listed : starting) {
    const std::string path = EntryLockPath(paths.state_dir, listed.entry_id);
    absl::StatusOr<UniqueFd> lock = TryRemovableLock(path);
    if (absl::IsUnavailable(lock.status())) continue;  // it is being started
    RETURN_IF_ERROR(lock.status());
    const absl::Cleanup done = [&] { RemoveLock(*std::move(lock), path); };
    // The process that started it was killed, and left this, too.
    const std::string turn_path = TurnLockPath(paths.state_dir, listed.entry_id);
    absl::StatusOr<UniqueFd> turn = TryRemovableLock(turn_path);
    if (turn.ok()) RemoveLock(*std::move(turn), turn_path);
    ASSIGN_OR_RETURN(const std::optional<Entry> entry, batches.FindEntry(listed.entry_id));
    if (!entry.has_value() || entry->state != EntryState::kStarting) continue;
    const absl::Status settled = SettleClaim(context, runs, batches, *entry);
    if (!settled.ok()) {
      context.Warn(absl::StrCat("it is not known whether ", entry->name,
                                " was started: ", settled.message()));
    }
  }
  RemoveLeftLocks(paths.state_dir, context.NowMs());
  RemoveLeftLogs(paths.state_dir, batches, context.NowMs());
  return absl::OkStatus();
}

}  // namespace gpuctl
