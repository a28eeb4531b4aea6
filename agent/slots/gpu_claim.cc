#include "agent/slots/gpu_claim.h"

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/base/gpu_grant.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/job/stream_file.h"

namespace gpuctl {
namespace {

// Probes hold the lock for an instant, so it is tried again.
constexpr absl::Duration kLockPatience = absl::Milliseconds(200);
constexpr absl::Duration kLockInterval = absl::Milliseconds(2);

// Takes the lock of a job that has no shim.
absl::StatusOr<UniqueFd> LockWaiting(const JobPaths& job, Clock& clock) {
  const absl::Duration end = clock.SinceBoot() + kLockPatience;
  while (true) {
    absl::StatusOr<UniqueFd> lock = TryLock(job.lock);
    if (lock.ok() || !absl::IsUnavailable(lock.status())) return lock;
    if (clock.SinceBoot() >= end) return absl::AbortedError("queue job: a shim has it");
    clock.SleepFor(kLockInterval);
  }
}

// Returns ABORTED when the job does not wait to begin `attempt`.
absl::Status CheckWaits(const Lifecycle& lifecycle, int attempt) {
  const LifecycleEvent* last = LastStateEvent(lifecycle);
  const int next = last == nullptr                              ? 1
                   : last->type == LifecycleEvent::Type::kRetry ? last->attempt
                                                                : 0;
  if (next == attempt) return absl::OkStatus();
  return absl::AbortedError("queue job: it has moved on");
}

// The caller holds the job's lock.
absl::Status AppendLocked(const JobPaths& job, const Lifecycle& lifecycle, LifecycleEvent queued,
                          Clock& clock) {
  queued.type = LifecycleEvent::Type::kQueued;
  queued.time_ms = absl::ToUnixMillis(clock.Now());
  if (const LifecycleEvent* last = LastStateEvent(lifecycle)) {
    queued.output_size = last->output_size;
    queued.metrics_size = last->metrics_size;
  }
  ASSIGN_OR_RETURN(StreamWriter writer, StreamWriter::Open(job.lifecycle, PlainShape()));
  RETURN_IF_ERROR(writer.TerminateLine());
  RETURN_IF_ERROR(writer.Append(FormatLifecycleEvent(queued)));
  return writer.Sync();
}

// Returns the claim of an attempt that has begun and not ended.
GpuClaim ClaimOfRunning(const LifecycleEvent& started) {
  GpuClaim claim;
  claim.attempt = started.attempt;
  claim.kind = started.gpus.has_value() ? GpuClaim::Kind::kSome : GpuClaim::Kind::kAll;
  if (started.gpus.has_value()) claim.gpus = *started.gpus;
  return claim;
}

}  // namespace

GpuWish WishOf(const gpuctl::v1::JobSpec& spec) {
  GpuWish wish;
  if (spec.has_gpus()) wish.gpus = spec.gpus();
  wish.has_secrets = spec.secret_names_size() > 0;
  wish.in_gang = spec.has_gang();
  return wish;
}

absl::StatusOr<GpuClaim> ReadGpuClaim(const JobPaths& job, const GpuWish& wish, bool starting) {
  // The lock is probed first, as in DeriveJob.
  ASSIGN_OR_RETURN(const bool locked, IsLocked(job.lock));
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(job));
  const LifecycleEvent* last = LastStateEvent(lifecycle);
  // Processes of a lost attempt may live until `lost` is written.
  if (last != nullptr && last->type == LifecycleEvent::Type::kStarted) return ClaimOfRunning(*last);
  GpuClaim claim;
  if (last != nullptr && last->type != LifecycleEvent::Type::kRetry) {
    claim.over = !locked;
    return claim;
  }
  claim.attempt = last == nullptr ? 1 : last->attempt;
  if (!wish.gpus.has_value()) {
    // It waits for nothing but its start, or for the time or the client of its retry.
    const bool begins = locked || starting || (last == nullptr && !wish.has_secrets);
    claim.kind = begins ? GpuClaim::Kind::kAll : GpuClaim::Kind::kNone;
    return claim;
  }
  if (*wish.gpus == 0) return claim;
  const absl::StatusOr<GpuGrant> grant = ReadGpuGrant(job);
  if (grant.ok() && grant->attempt == claim.attempt) {
    claim.kind = GpuClaim::Kind::kSome;
    claim.gpus = grant->gpus;
    return claim;
  }
  if (!grant.ok() && !absl::IsNotFound(grant.status())) return grant.status();
  // A shim without a grant starts nothing.
  if (locked) return claim;
  claim.kind = GpuClaim::Kind::kWaits;
  if (const LifecycleEvent* queued = QueuedEvent(lifecycle)) claim.queued = *queued;
  claim.queued_since_ms = QueuedSinceMs(lifecycle);
  if (last != nullptr) claim.retry = *last;
  return claim;
}

bool HasGrant(const JobPaths& job, int attempt) {
  const absl::StatusOr<GpuGrant> grant = ReadGpuGrant(job);
  return grant.ok() && grant->attempt == attempt;
}

absl::Status AppendQueued(const JobPaths& job, LifecycleEvent queued, Clock& clock) {
  ASSIGN_OR_RETURN(const UniqueFd lock, LockWaiting(job, clock));
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(job));
  RETURN_IF_ERROR(CheckWaits(lifecycle, queued.attempt));
  return AppendLocked(job, lifecycle, std::move(queued), clock);
}

absl::Status RevokeGrant(const JobPaths& job, LifecycleEvent queued, Clock& clock) {
  ASSIGN_OR_RETURN(const UniqueFd lock, LockWaiting(job, clock));
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(job));
  RETURN_IF_ERROR(CheckWaits(lifecycle, queued.attempt));
  if (file_ops::Unlink(job.gpus) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, absl::StrCat("remove ", job.gpus));
  }
  RETURN_IF_ERROR(SyncDirectory(job.dir));
  return AppendLocked(job, lifecycle, std::move(queued), clock);
}

}  // namespace gpuctl
