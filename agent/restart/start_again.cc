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
#include "absl/strings/str_join.h"
#include "agent/base/job_end.h"
#include "agent/base/node_root.h"
#include "agent/base/time_stamp.h"
#include "agent/bundle/bundle.h"
#include "agent/hold/keep_results.h"
#include "agent/hold/kept_layout.h"
#include "agent/hold/results_copy.h"
#include "agent/jobs/job_accept.h"
#include "agent/limits/node_limits_store.h"
#include "agent/restart/kept_past.h"
#include "agent/restart/restart_kit.h"
#include "agent/restart/staged.h"
#include "agent/trees/take.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/process/process.h"
#include "common/release/release_route.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kFindWithin = absl::Seconds(30);

using Type = LifecycleEvent::Type;

void Complain(const absl::Status& status) {
  if (status.ok()) return;
  fprintf(stderr, "gpuctl-agent: start again: %s\n", std::string(status.message()).c_str());
}

// A job of the earlier start.
struct KeptJob {
  std::string job_id;
  StoredSpec stored;  // of one whose spec.json cannot be read, one in its place
  bool goes_on = false;
  std::string refused;  // why it cannot go on; empty for one that may, and for one that is over
};

std::vector<std::string> DirectoriesOf(const RootPaths& copy) {
  std::vector<std::string> jobs = ListDirectory(copy.jobs).value_or(std::vector<std::string>());
  jobs.erase(std::remove_if(jobs.begin(), jobs.end(),
                            [](const std::string& name) { return !IsValidId(name); }),
             jobs.end());
  return jobs;
}

// True for a copy with files of a job that no later copy has.
bool MustStay(const RootPaths& copy) {
  const std::vector<std::string> jobs = DirectoriesOf(copy);
  return std::any_of(jobs.begin(), jobs.end(),
                     [&copy](const std::string& job_id) { return Stays(copy.Job(job_id)); });
}

// Removes the copies of this allocation's starts that are older than the one of the name `used`.
void RemoveOlderCopies(const std::string& directory, const AllocationStart& own,
                       const std::string& used) {
  const int64_t oldest = ParseAllocationStart(used)->restart;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory);
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    const std::optional<AllocationStart> start = ParseAllocationStart(name);
    if (!start.has_value() || start->job != own.job || start->restart >= oldest) continue;
    const std::string copy = JoinPath(directory, name);
    if (!MustStay(RootPaths(copy))) (void)RemoveTree(copy);
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

// Copies what was kept of a job. The lifecycle is the first: it never names bytes that are not in
// the copy, and an earlier start may live on somewhere and write. What cannot be copied leaves the
// rest; the first error is returned.
absl::Status CopyKept(const JobPaths& from, const JobPaths& to) {
  RETURN_IF_ERROR(MakeDirectories(to.dir));
  absl::Status all;
  const auto copy_file = [&all](const std::string& kept, const std::string& here) {
    if (!PathExists(kept)) return;
    const absl::Status copied = CopyOneFile(kept, here);
    if (!copied.ok()) (void)RemoveTree(here);
    all.Update(copied);
  };
  copy_file(from.lifecycle, to.lifecycle);
  for (const auto& [kept, here] :
       {std::make_pair(from.output, to.output), std::make_pair(from.work, to.work),
        std::make_pair(from.checkpoints, to.checkpoints)}) {
    if (!PathExists(kept)) continue;
    const absl::Status copied = CopyDirectory(kept, here);
    // A part of a checkpoint, or of a result, would be taken for all of it.
    if (!copied.ok() && here != to.output) (void)RemoveTree(here);
    all.Update(copied);
  }
  copy_file(from.metrics, to.metrics);
  copy_file(from.time_limit, to.time_limit);
  return all;
}

// Returns the time of the end of what nobody saw end. The time in Slurm's queue is no running time.
int64_t EndTimeMs(const std::string& copy, const LifecycleEvent& last, Clock& clock) {
  return std::clamp(LastSignMs(copy), last.time_ms,
                    std::max(last.time_ms, absl::ToUnixMillis(clock.Now())));
}

// Ends an attempt that runs by the lifecycle of `job`: its node failed, or everything there was
// killed. Returns the number of the attempt; 0: none runs. `copy` is that of the node.
absl::StatusOr<int> EndLost(const JobPaths& job, const std::string& copy, gpuctl::v1::JobSpec spec,
                            Clock& clock) {
  ASSIGN_OR_RETURN(const KeptPast past, ReadKeptPast(job, spec));
  if (past.running == 0) return 0;
  LifecycleEvent lost;
  lost.type = Type::kLost;
  lost.attempt = past.running;
  lost.boot_id = BootId();
  lost.reason = kNodeFailedReason;
  lost.time_ms = EndTimeMs(copy, *LastStateEvent(past.lifecycle), clock);
  spec.clear_retry();
  RETURN_IF_ERROR(AppendEnd(job, spec, std::move(lost), clock));
  return past.running;
}

// Appends the end of a job that cannot go on, whatever its lifecycle has. `copy` is that of the
// node.
absl::Status AppendRefused(const JobPaths& job, const std::string& copy, gpuctl::v1::JobSpec spec,
                           absl::string_view reason, Clock& clock) {
  const absl::StatusOr<KeptPast> past = ReadKeptPast(job, spec);
  LifecycleEvent lost;
  lost.type = Type::kLost;
  lost.attempt = 1;
  if (past.ok()) {
    const LifecycleEvent* last = LastStateEvent(past->lifecycle);
    if (last != nullptr) lost.attempt = std::max(last->attempt, past->running);
    if (past->running > 0) lost.time_ms = EndTimeMs(copy, *last, clock);
  }
  lost.boot_id = BootId();
  lost.reason = std::string(reason);
  spec.clear_retry();
  return AppendEnd(job, spec, std::move(lost), clock);
}

// Finds out whether a job of the copy goes on.
KeptJob Judge(const RootPaths& copy, const std::string& directory, const std::string& job_id) {
  const JobPaths from = copy.Job(job_id);
  KeptJob job;
  job.job_id = job_id;
  absl::StatusOr<StoredSpec> stored = ReadStoredSpec(from);
  if (stored.ok() && stored->spec.job_id() != job_id) {
    stored = absl::DataLossError("its spec.json is that of another job");
  }
  if (!stored.ok()) {
    job.stored.spec = SpecInPlace(from, job_id);
    job.refused = std::string(stored.status().message());
    return job;
  }
  job.stored = *std::move(stored);
  if (StoppedReason(directory, job_id).has_value()) return job;
  const absl::StatusOr<KeptPast> past = ReadKeptPast(from, job.stored.spec);
  if (!past.ok()) {
    job.refused = std::string(past.status().message());
    return job;
  }
  job.goes_on = MayGoOn(copy, job.stored.spec, past->lifecycle) &&
                (past->running == 0 || WantsRestart(job.stored.spec.retry(), past->running));
  return job;
}

std::vector<KeptJob> JudgeAll(const RootPaths& copy, const std::string& directory) {
  std::vector<KeptJob> jobs;
  for (const std::string& job_id : DirectoriesOf(copy)) {
    const JobPaths from = copy.Job(job_id);
    // A copy that has not come to its spec.json has nothing.
    if (!PathExists(from.spec) && !PathExists(from.lifecycle)) continue;
    jobs.push_back(Judge(copy, directory, job_id));
  }
  return jobs;
}

// Makes a job that is over, or that does not go on; `stopped` has the reason of a user's stop.
absl::Status MakeOver(const RootPaths& root, const std::string& copy, const StoredSpec& stored,
                      const std::optional<std::string>& stopped, Clock& clock) {
  const JobPaths job = root.Job(stored.spec.job_id());
  const JobPaths from = RootPaths(copy).Job(stored.spec.job_id());
  if (const absl::Status copied = CopyKept(from, job); !copied.ok()) {
    // It is over all the same, and what is missing here stays there.
    Complain(NoteStays(from, copied.message()));
    Complain(copied);
  }
  if (stopped.has_value()) {
    RETURN_IF_ERROR(WriteFileAtomic(job.spec, FormatStoredSpec(stored)));
    return EndKept(job, copy, *stopped, clock);
  }
  RETURN_IF_ERROR(EndLost(job, copy, stored.spec, clock).status());
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(job));
  const LifecycleEvent* last = LastStateEvent(lifecycle);
  RETURN_IF_ERROR(WriteFileAtomic(job.spec, FormatStoredSpec(stored)));
  return IsOver(lifecycle) || last == nullptr || last->type != Type::kRetry
             ? absl::OkStatus()
             : EndUnstarted(job, kAllocationEndsReason, clock);
}

// Returns the reason of the end of a job that could not go on from `copy`.
std::string NotStartedReason(const std::string& copy, absl::string_view why) {
  return absl::StrCat(IsStaged(RootPaths(copy)) ? kNotStartedPrefix : kNotStartedAgainPrefix, why);
}

// Makes a job that cannot go on: lost, with the reason and what can be copied of it.
absl::Status MakeRefused(const RootPaths& root, const std::string& copy, const KeptJob& kept,
                         Clock& clock) {
  const JobPaths from = RootPaths(copy).Job(kept.job_id);
  Complain(absl::FailedPreconditionError(absl::StrCat(kept.job_id, ": ", kept.refused)));
  Complain(NoteRefused(from, kept.refused));
  const JobPaths job = root.Job(kept.job_id);
  RETURN_IF_ERROR(RemoveTree(job.dir));
  (void)CopyKept(from, job);
  RETURN_IF_ERROR(
      AppendRefused(job, copy, kept.stored.spec, NotStartedReason(copy, kept.refused), clock));
  return WriteFileAtomic(job.spec, FormatStoredSpec(kept.stored));
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

// Returns the error of a start with which no job can go on.
absl::Status NoneGoesOn(const std::vector<KeptJob>& jobs) {
  std::vector<std::string> reasons;
  for (const KeptJob& job : jobs) {
    if (!job.refused.empty()) reasons.push_back(absl::StrCat(job.job_id, ": ", job.refused));
  }
  if (reasons.empty()) return absl::NotFoundError("no job is left that goes on");
  return absl::FailedPreconditionError(absl::StrJoin(reasons, "; "));
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
  if (kept.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("no programs are in ", again.bin));
  }
  const std::string own = JoinPath(root.bin, BaseName(kept));
  RETURN_IF_ERROR(CopyDirectory(kept, own));
  return AdoptBundle(root, own).status();
}

// Makes a root without jobs and programs: the node of `copy`, with its limits.
absl::StatusOr<RootPaths> MakeEmptyRoot(const RootPaths& root, const std::string& copy,
                                        Clock& clock) {
  ASSIGN_OR_RETURN(RootPaths made, PrepareNodeRoot(root.root));
  ASSIGN_OR_RETURN(const std::string stored_id, ReadFileToString(RootPaths(copy).node_id, 4096));
  RETURN_IF_ERROR(
      WriteFileAtomic(made.node_id, absl::StrCat(absl::StripAsciiWhitespace(stored_id), "\n")));
  RETURN_IF_ERROR(TakeLimits(made, copy, clock));
  return made;
}

// Makes the root of the jobs in `copy`. Takes those that cannot go on out of `jobs`.
absl::Status MakeRoot(const RootPaths& root, const std::string& directory, const std::string& copy,
                      std::vector<KeptJob>& jobs, Clock& clock) {
  const auto any = [&jobs] {
    return std::any_of(jobs.begin(), jobs.end(), [](const KeptJob& job) { return job.goes_on; });
  };
  if (!any()) return NoneGoesOn(jobs);
  const RootPaths from(copy);
  const RootPaths again(JoinPath(directory, kKeptAgain));
  ASSIGN_OR_RETURN(const RootPaths made, MakeEmptyRoot(root, copy, clock));
  ASSIGN_OR_RETURN(const std::string node_id, NodeId(made));
  // The machine's own numbers are no reason not to go on.
  if (IsDirectory(from.telemetry) && !CopyDirectory(from.telemetry, made.telemetry).ok()) {
    RETURN_IF_ERROR(RemoveTree(made.telemetry));
  }
  // Those that go on get what room there is.
  for (KeptJob& job : jobs) {
    if (!job.goes_on) continue;
    const absl::Status waits = MakeWaiting(made, node_id, copy, again, job.stored, clock);
    if (waits.ok()) {
      ForgetRefused(from.Job(job.job_id));
      continue;
    }
    job.goes_on = false;
    job.refused = std::string(waits.message());
    (void)RemoveTree(made.Job(absl::StrCat(job.job_id, kPreparedEnding)).dir);
  }
  if (!any()) return NoneGoesOn(jobs);
  for (KeptJob& job : jobs) {
    if (job.goes_on) continue;
    if (job.refused.empty()) {
      const absl::Status over =
          MakeOver(made, copy, job.stored, StoppedReason(directory, job.job_id), clock);
      if (over.ok()) continue;
      job.refused = std::string(over.message());
    }
    RETURN_IF_ERROR(MakeRefused(made, copy, job, clock));
  }
  // The batch script waits for them, so they are the last.
  return TakePrograms(made, again);
}

}  // namespace

absl::Status StartFirst(const RootPaths& root, const std::string& directory, Clock& clock) {
  const std::optional<AllocationStart> own = ParseAllocationStart(BaseName(root.root));
  if (!own.has_value() || own->restart != 0) {
    return absl::InvalidArgumentError("this is no root of a first start");
  }
  const RootPaths copy(JoinPath(directory, absl::StrCat(own->job, "-", kStagedWord)));
  const absl::Status taken = TakeStaged(copy);
  if (taken.ok()) return StartAgain(root, directory, clock);
  if (!absl::IsNotFound(taken)) return taken;
  // The client asks the node to start its run. It is to find the node that it knows.
  ASSIGN_OR_RETURN(const RootPaths made, MakeEmptyRoot(root, copy.root, clock));
  const RootPaths again(JoinPath(directory, kKeptAgain));
  // It sends its content there, too.
  (void)RemoveTree(again.trees);
  return TakePrograms(made, again);
}

absl::Status StartAgain(const RootPaths& root, const std::string& directory, Clock& clock) {
  const std::optional<AllocationStart> own = ParseAllocationStart(BaseName(root.root));
  if (!own.has_value()) return absl::InvalidArgumentError("this is no allocation's root");
  ASSIGN_OR_RETURN(const std::string copy, EarlierCopy(directory, *own));
  std::vector<KeptJob> jobs = JudgeAll(RootPaths(copy), directory);
  const absl::Status made = MakeRoot(root, directory, copy, jobs, clock);
  const bool wanted = std::any_of(jobs.begin(), jobs.end(), [](const KeptJob& job) {
    return job.goes_on || !job.refused.empty();
  });
  // That is the word for a start that nobody needs.
  if (absl::IsNotFound(made) && wanted) return absl::FailedPreconditionError(made.message());
  RETURN_IF_ERROR(made);
  // What was sent for the first start is of no use any more.
  const bool again = std::any_of(jobs.begin(), jobs.end(), [](const KeptJob& job) {
    return job.goes_on && MayStartAgain(job.stored.spec);
  });
  if (!again) (void)RemoveTree(RootPaths(JoinPath(directory, kKeptAgain)).trees);
  // The copy that was used stays until this start has its own.
  RemoveOlderCopies(directory, *own, BaseName(copy));
  return absl::OkStatus();
}

absl::Status EndKept(const JobPaths& job, const std::string& copy, absl::string_view reason,
                     Clock& clock) {
  ASSIGN_OR_RETURN(const StoredSpec stored, ReadStoredSpec(job));
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(job));
  if (IsOver(lifecycle)) return absl::OkStatus();
  const absl::StatusOr<int> lost = EndLost(job, copy, stored.spec, clock);
  // Whatever its attempts were, it was stopped.
  if (!lost.ok() && !absl::IsDataLoss(lost.status())) return lost.status();
  // A stop comes after the lost attempt, in place of the next one.
  if (lost.value_or(0) > 0) RETURN_IF_ERROR(AppendRetry(job, stored.spec, *lost + 1, 0, clock));
  return EndUnstarted(job, reason, clock);
}

void EndAllKept(const RootPaths& copy, Clock& clock) {
  const std::string directory(DirName(copy.root));
  const std::optional<std::string> failed = FailedStartAfter(copy);
  for (const std::string& job_id : DirectoriesOf(copy)) {
    const JobPaths job = copy.Job(job_id);
    const absl::StatusOr<StoredSpec> stored = ReadStoredSpec(job);
    if (!stored.ok()) continue;
    const absl::StatusOr<KeptPast> past = ReadKeptPast(job, stored->spec);
    if (past.ok() ? IsOver(past->lifecycle) : !absl::IsDataLoss(past.status())) continue;
    if (const std::optional<std::string> stopped = StoppedReason(directory, job_id)) {
      (void)EndKept(job, copy.root, *stopped, clock);
      continue;
    }
    const std::optional<std::string> refused = RefusedReason(job);
    std::string why;
    if (refused.has_value() || failed.has_value()) {
      why = NotStartedReason(copy.root, refused.has_value() ? *refused : *failed);
    } else if (!past.ok()) {
      why = std::string(past.status().message());
    }
    if (!why.empty()) {
      const absl::StatusOr<UniqueFd> lock = TryLock(job.lock);
      const absl::StatusOr<Lifecycle> now = ReadLifecycle(job);
      if (!lock.ok() || !now.ok() || IsOver(*now)) continue;
      (void)AppendRefused(job, copy.root, stored->spec, why, clock);
    } else if (past->running == 0) {
      (void)EndUnstarted(job, kAllocationEndsReason, clock);
    }
  }
}

int RunStartAgain(const std::string& root, const std::string& directory) {
  const RootPaths paths(root);
  const char* token = getenv(kResultsTokenVariable);
  const absl::Status found = FindToken(
      directory, token != nullptr ? token : "", kFindWithin, [] { return false; }, Clock::Real());
  const absl::Status is_own = CheckOwnDirectory(directory);
  absl::Status status = found.ok() ? is_own : found;
  const std::optional<AllocationStart> own = ParseAllocationStart(BaseName(root));
  bool wanted = true;
  if (status.ok()) {
    status = own.has_value() && own->restart == 0 ? StartFirst(paths, directory, Clock::Real())
                                                  : StartAgain(paths, directory, Clock::Real());
    wanted = !absl::IsNotFound(status);
  }
  if (!status.ok() && wanted && own.has_value() && is_own.ok()) {
    Complain(NoteFailedStart(directory, *own, status.message()));
  }
  Complain(status);
  return status.ok() ? 0 : 1;
}

}  // namespace gpuctl
