#include "agent/restart/start_again.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "agent/base/job_end.h"
#include "agent/base/node_root.h"
#include "agent/base/time_stamp.h"
#include "agent/bundle/bundle.h"
#include "agent/hold/keep_results.h"
#include "agent/hold/kept_layout.h"
#include "agent/hold/results_copy.h"
#include "agent/jobs/job_accept.h"
#include "agent/limits/node_limits_store.h"
#include "agent/restart/restart_kit.h"
#include "agent/trees/take.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/process/process.h"
#include "common/release/release_route.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kFindWithin = absl::Seconds(30);

// Removes the copies of this allocation's starts that are older than the one of the name `used`.
void RemoveOlderCopies(const std::string& directory, const AllocationStart& own,
                       const std::string& used) {
  const int64_t oldest = ParseAllocationStart(used)->restart;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory);
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    const std::optional<AllocationStart> start = ParseAllocationStart(name);
    if (!start.has_value() || start->job != own.job || start->restart >= oldest) continue;
    (void)RemoveTree(JoinPath(directory, name));
  }
}

// Returns when the node of a copy has last written to it: it does so every second.
int64_t LastSignMs(const std::string& copy) {
  int64_t last = 0;
  const std::string folder = RootPaths(copy).telemetry;
  const absl::StatusOr<std::vector<std::string>> segments = ListDirectory(folder);
  for (const std::string& segment : segments.value_or(std::vector<std::string>())) {
    struct stat info {};
    if (stat(JoinPath(folder, segment).c_str(), &info) != 0) continue;
    last = std::max<int64_t>(last, int64_t{info.st_mtime} * 1000);
  }
  return last;
}

// Copies the streams of a job. The lifecycle is the first: it never names bytes that are not in the
// copy, and an earlier start may live on somewhere and write.
absl::Status CopyKept(const JobPaths& from, const JobPaths& to) {
  RETURN_IF_ERROR(MakeDirectories(to.dir));
  if (PathExists(from.lifecycle)) RETURN_IF_ERROR(CopyOneFile(from.lifecycle, to.lifecycle));
  for (const auto& [kept, here] :
       {std::make_pair(from.output, to.output), std::make_pair(from.work, to.work),
        std::make_pair(from.checkpoints, to.checkpoints)}) {
    if (IsDirectory(kept)) RETURN_IF_ERROR(CopyDirectory(kept, here));
  }
  for (const auto& [kept, here] :
       {std::make_pair(from.metrics, to.metrics), std::make_pair(from.time_limit, to.time_limit)}) {
    if (PathExists(kept)) RETURN_IF_ERROR(CopyOneFile(kept, here));
  }
  return absl::OkStatus();
}

// Ends an attempt that runs by the lifecycle of `job`: its node failed, or everything there was
// killed. Returns the number of the attempt; 0: none runs. `copy` is that of the node.
absl::StatusOr<int> EndLost(const JobPaths& job, const std::string& copy, gpuctl::v1::JobSpec spec,
                            Clock& clock) {
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(job));
  const LifecycleEvent* last = LastStateEvent(lifecycle);
  if (last == nullptr || last->type != LifecycleEvent::Type::kStarted) return 0;
  LifecycleEvent lost;
  lost.type = LifecycleEvent::Type::kLost;
  lost.attempt = last->attempt;
  lost.boot_id = BootId();
  lost.reason = kNodeFailedReason;
  // The time in Slurm's queue is no running time.
  lost.time_ms = std::clamp(LastSignMs(copy), last->time_ms,
                            std::max(last->time_ms, absl::ToUnixMillis(clock.Now())));
  spec.clear_retry();
  RETURN_IF_ERROR(AppendEnd(job, spec, std::move(lost), clock));
  return last->attempt;
}

// Makes a job that is over, or that does not go on; `stopped` has the reason of a user's stop.
absl::Status MakeOver(const RootPaths& root, const std::string& copy, const StoredSpec& stored,
                      const std::optional<std::string>& stopped, Clock& clock) {
  const JobPaths job = root.Job(stored.spec.job_id());
  RETURN_IF_ERROR(CopyKept(RootPaths(copy).Job(stored.spec.job_id()), job));
  if (stopped.has_value()) {
    RETURN_IF_ERROR(WriteFileAtomic(job.spec, FormatStoredSpec(stored)));
    return EndKept(job, copy, *stopped, clock);
  }
  RETURN_IF_ERROR(EndLost(job, copy, stored.spec, clock).status());
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(job));
  const LifecycleEvent* last = LastStateEvent(lifecycle);
  RETURN_IF_ERROR(WriteFileAtomic(job.spec, FormatStoredSpec(stored)));
  return IsOver(lifecycle) || last == nullptr || last->type != LifecycleEvent::Type::kRetry
             ? absl::OkStatus()
             : EndUnstarted(job, kAllocationEndsReason, clock);
}

// Makes a job that goes on, with its next attempt.
absl::Status MakeWaiting(const RootPaths& root, const std::string& node_id, const std::string& copy,
                         const RootPaths& again, const StoredSpec& stored, Clock& clock) {
  const std::string& job_id = stored.spec.job_id();
  for (const std::string& digest : TreesOf(stored.spec)) {
    RETURN_IF_ERROR(BringTree(again.trees, root.trees, digest));
  }
  RETURN_IF_ERROR(PrepareJob(root, node_id, stored));
  const JobPaths job = root.Job(absl::StrCat(job_id, kPreparedEnding));
  RETURN_IF_ERROR(CopyKept(RootPaths(copy).Job(job_id), job));
  ASSIGN_OR_RETURN(const int lost, EndLost(job, copy, stored.spec, clock));
  if (lost > 0) {
    RETURN_IF_ERROR(AppendRetry(job, stored.spec, lost + 1,
                                RetryDelayMs(stored.spec.retry(), lost + 1), clock));
  }
  // The directory gets its name only now that all is there.
  return CommitJob(root, job_id);
}

absl::Status TakeLimits(const RootPaths& root, const std::string& copy, Clock& clock) {
  const RootPaths from(copy);
  if (!PathExists(from.limits)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const StoredLimits stored, ReadNodeLimits(from));
  // Their times begin anew, as the allocation's own does.
  return StoreNodeLimits(root, stored.limits, StampNow(BootId(), clock));
}

absl::Status TakePrograms(const RootPaths& root, const RootPaths& again) {
  const std::string kept = CurrentBundle(again);
  if (kept.empty()) return absl::NotFoundError("no programs were kept");
  const std::string own = JoinPath(root.bin, BaseName(kept));
  RETURN_IF_ERROR(CopyDirectory(kept, own));
  return AdoptBundle(root, own).status();
}

}  // namespace

absl::Status StartAgain(const RootPaths& root, const std::string& directory, Clock& clock) {
  const std::optional<AllocationStart> own = ParseAllocationStart(BaseName(root.root));
  if (!own.has_value()) return absl::InvalidArgumentError("this is no allocation's root");
  ASSIGN_OR_RETURN(const std::string copy, EarlierCopy(directory, *own));
  const RootPaths from(copy);
  const RootPaths again(JoinPath(directory, kKeptAgain));
  std::vector<std::pair<StoredSpec, bool>> jobs;
  bool any = false;
  for (const std::string& job_id : JobsOfRoot(from)) {
    ASSIGN_OR_RETURN(StoredSpec stored, ReadStoredSpec(from.Job(job_id)));
    ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(from.Job(job_id)));
    const bool goes_on =
        MayStartAgain(stored.spec, lifecycle) && !StoppedReason(directory, job_id).has_value();
    any = any || goes_on;
    jobs.emplace_back(std::move(stored), goes_on);
  }
  if (!any) return absl::NotFoundError("no job is left that goes on");
  ASSIGN_OR_RETURN(const RootPaths made, PrepareNodeRoot(root.root));
  ASSIGN_OR_RETURN(const std::string stored_id, ReadFileToString(from.node_id, 4096));
  const std::string node_id(absl::StripAsciiWhitespace(stored_id));
  RETURN_IF_ERROR(WriteFileAtomic(made.node_id, absl::StrCat(node_id, "\n")));
  RETURN_IF_ERROR(TakeLimits(made, copy, clock));
  if (IsDirectory(from.telemetry)) RETURN_IF_ERROR(CopyDirectory(from.telemetry, made.telemetry));
  for (const auto& [stored, goes_on] : jobs) {
    RETURN_IF_ERROR(goes_on ? MakeWaiting(made, node_id, copy, again, stored, clock)
                            : MakeOver(made, copy, stored,
                                       StoppedReason(directory, stored.spec.job_id()), clock));
  }
  // The batch script waits for them, so they are the last.
  RETURN_IF_ERROR(TakePrograms(made, again));
  // The copy that was used stays until this start has its own.
  RemoveOlderCopies(directory, *own, BaseName(copy));
  return absl::OkStatus();
}

absl::Status EndKept(const JobPaths& job, const std::string& copy, absl::string_view reason,
                     Clock& clock) {
  ASSIGN_OR_RETURN(const StoredSpec stored, ReadStoredSpec(job));
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(job));
  if (IsOver(lifecycle)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int lost, EndLost(job, copy, stored.spec, clock));
  // A stop comes after the lost attempt, in place of the next one.
  if (lost > 0) RETURN_IF_ERROR(AppendRetry(job, stored.spec, lost + 1, 0, clock));
  return EndUnstarted(job, reason, clock);
}

int RunStartAgain(const std::string& root, const std::string& directory) {
  const char* token = getenv(kResultsTokenVariable);
  absl::Status status = FindToken(
      directory, token != nullptr ? token : "", kFindWithin, [] { return false; }, Clock::Real());
  if (status.ok()) status = CheckOwnDirectory(directory);
  if (status.ok()) status = StartAgain(RootPaths(root), directory, Clock::Real());
  if (status.ok()) return 0;
  fprintf(stderr, "gpuctl-agent: start again: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace gpuctl
