// What the server does about its jobs every second.
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "agent/base/gang_note.h"
#include "agent/base/held_root.h"
#include "agent/base/job_end.h"
#include "agent/base/processes.h"
#include "agent/jobs/job_accept.h"
#include "agent/jobs/job_table.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/process/process.h"
#include "common/release/release_route.h"

namespace gpuctl {

using gpuctl::v1::Job;

namespace {

// The time after which a job is launched again when its shim did not come up.
constexpr absl::Duration kRelaunchAfter = absl::Seconds(2);
// The number of launches after which the attempt ends with what the shim said.
constexpr int kMostLaunches = 5;
// The same as a time, for a job with secrets.
constexpr absl::Duration kSecretPatience = absl::Seconds(15);
// The time in which the processes of a lost attempt must die of SIGKILL, and the pause before the
// next try. Some wait for a driver or a file system and do not die.
constexpr absl::Duration kSweepPatience = absl::Seconds(2);
constexpr absl::Duration kSweepAgainAfter = absl::Seconds(30);
}  // namespace

void JobTable::Tend() {
  launcher_.Reap();
  absl::StatusOr<std::vector<std::string>> names = ListDirectory(paths_.jobs);
  if (!names.ok()) return;
  somebody_waits_ = false;
  for (const std::string& name : *names) {
    bool waits = false;
    {
      MutexLock lock(mutex_);
      if (over_.count(name) != 0 || busy_.count(name) != 0) continue;
      waits = places_.count(name) != 0;
    }
    // TendQueue looks at those that waited, at less cost.
    if (waits && !PathExists(paths_.Job(name).stop)) {
      somebody_waits_ = true;
      continue;
    }
    const bool job = !absl::EndsWith(name, kPreparedEnding) && PathExists(paths_.Job(name).spec);
    const absl::Status status = job ? TendJob(name) : Clean(name);
    if (status.ok()) continue;
    Log(LogLevel::kWarning, absl::StrCat("tend job ", name, ": ", status.ToString()));
  }
  if (somebody_waits_) TendQueue();
}

// Removes a directory without a spec.json where that is known to be of no use: the job was buried,
// or was not accepted. Everything else belongs to somebody.
absl::Status JobTable::Clean(const std::string& name) {
  const bool prepared = absl::EndsWith(name, kPreparedEnding);
  const std::string job_id(absl::StripSuffix(name, kPreparedEnding));
  {
    MutexLock lock(mutex_);
    if (busy_.count(job_id) != 0 || (!prepared && !PathExists(Tombstone(job_id)))) {
      return absl::OkStatus();
    }
    busy_.insert(job_id);
  }
  const absl::Status gone = RemoveTree(paths_.Job(name).dir);
  MutexLock lock(mutex_);
  Release(job_id);
  // A failed removal of a buried job is not repeated every second.
  if (!gone.ok() && !prepared) over_[name];
  return gone;
}

absl::Status JobTable::TendJob(const std::string& job_id) {
  const JobPaths job = paths_.Job(job_id);
  ASSIGN_OR_RETURN(const StoredSpec stored, ReadStoredSpec(job));
  ASSIGN_OR_RETURN(const Job state, DeriveJob(job, stored));
  if (state.job_id() != job_id) return absl::OkStatus();
  if (stored.spec.has_gang()) {
    ASSIGN_OR_RETURN(const bool ended, EndUnkept(job, state));
    if (ended) return absl::OkStatus();
  }
  switch (state.state()) {
    case gpuctl::v1::JOB_STATE_LOST:
      return WriteLost(job, stored);
    case gpuctl::v1::JOB_STATE_FINISHED: {
      MutexLock lock(mutex_);
      over_[job_id] = state;
      ForgetSecrets(job_id);
      return absl::OkStatus();
    }
    case gpuctl::v1::JOB_STATE_QUEUED:
    case gpuctl::v1::JOB_STATE_PENDING:
    case gpuctl::v1::JOB_STATE_RETRY_WAIT:
      return TendWaiting(job, stored, std::max(state.attempt(), 1));
    default:
      return absl::OkStatus();
  }
}

// `attempt` is the one that waits.
absl::Status JobTable::TendWaiting(const JobPaths& job, const StoredSpec& stored, int attempt) {
  if (const absl::StatusOr<std::string> reason = ReadFileToString(job.stop, 4096); reason.ok()) {
    const absl::string_view why = absl::StripAsciiWhitespace(*reason);
    // It waits for the next start of the allocation.
    if (why == kAllocationEndsReason && GoesOnAfterwards(paths_, stored.spec.job_id())) {
      return absl::OkStatus();
    }
    return EndUnstarted(job, why, clock_);
  }
  const bool secret = !stored.spec.secret_names().empty();
  if (stored.spec.gpus() > 0 && !HasGrant(job, attempt)) {
    somebody_waits_ = true;
    return absl::OkStatus();
  }
  if (stored.spec.has_gang() && !HasGangNote(job, attempt)) return absl::OkStatus();
  MutexLock lock(mutex_);
  const auto found = launches_.find(stored.spec.job_id());
  if (found != launches_.end() && found->second.attempt == attempt) {
    if (launcher_.IsStarting(job)) return absl::OkStatus();
    const Launches& launches = found->second;
    const absl::Duration since = clock_.SinceBoot() - launches.last;
    // Only a client has the secrets, so there is no second launch.
    if (secret ? since >= kSecretPatience : launches.count >= kMostLaunches) {
      launches_.erase(found);
      return EndWithoutShim(job, clock_);
    }
    if (since < kRelaunchAfter) return absl::OkStatus();
  }
  if (!secret) return LaunchIfDue(job, stored, {});
  if (const auto kept = secrets_.find(stored.spec.job_id());
      stored.spec.has_gang() && kept != secrets_.end()) {
    return LaunchIfDue(job, stored, Secrets(kept->second));
  }
  return stored.spec.gpus() > 0 ? RequeueWithoutSecrets(job, attempt) : absl::OkStatus();
}

absl::Status JobTable::WriteLost(const JobPaths& job, const StoredSpec& stored) {
  const std::string& job_id = stored.spec.job_id();
  {
    MutexLock lock(mutex_);
    const auto again = sweep_again_.find(job_id);
    if (again != sweep_again_.end() && clock_.SinceBoot() < again->second) return absl::OkStatus();
  }
  absl::StatusOr<UniqueFd> owned = TryLock(job.lock);
  if (absl::IsUnavailable(owned.status())) return absl::OkStatus();
  if (!owned.ok()) return owned.status();
  // Under the lock the last line is final. It may differ from the line that the state was derived
  // from.
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(job));
  const LifecycleEvent* last = LastStateEvent(lifecycle);
  if (last == nullptr ||
      (last->type != LifecycleEvent::Type::kStarted && last->type != LifecycleEvent::Type::kLost)) {
    return absl::OkStatus();
  }
  if (last->type == LifecycleEvent::Type::kLost) {
    ASSIGN_OR_RETURN(const Job state, DeriveJob(job));
    MutexLock lock(mutex_);
    over_[job_id] = state;
    return absl::OkStatus();
  }
  // The mutex is not held: a process may take long to die, or never die.
  if (absl::Status swept = SweepJob(job, job_id, kSweepPatience, clock_); !swept.ok()) {
    MutexLock lock(mutex_);
    sweep_again_[job_id] = clock_.SinceBoot() + kSweepAgainAfter;
    return swept;
  }
  LifecycleEvent lost;
  lost.type = LifecycleEvent::Type::kLost;
  lost.attempt = last->attempt;
  lost.boot_id = BootId();
  lost.reason = last->boot_id == lost.boot_id ? "the shim died" : "the machine restarted";
  return AppendEnd(job, stored.spec, std::move(lost), clock_);
}

}  // namespace gpuctl
