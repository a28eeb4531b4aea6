#include "agent/jobs/job_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"

namespace gpuctl {

using gpuctl::v1::Job;

namespace {

const char* EventName(const LifecycleEvent* event) {
  if (event == nullptr) return "none";
  switch (event->type) {
    case LifecycleEvent::Type::kStarted:
      return "started";
    case LifecycleEvent::Type::kExited:
      return "exited";
    case LifecycleEvent::Type::kLost:
      return "lost";
    case LifecycleEvent::Type::kRetry:
      return "retry";
    default:
      return "other";
  }
}

gpuctl::v1::JobState StateOf(bool locked, const LifecycleEvent* last) {
  using Type = LifecycleEvent::Type;
  if (last == nullptr) {
    return locked ? gpuctl::v1::JOB_STATE_STARTING : gpuctl::v1::JOB_STATE_PENDING;
  }
  switch (last->type) {
    case Type::kStarted:
      // The lock is free after `started`: the shim was lost, and Tend has not written that yet.
      return locked ? gpuctl::v1::JOB_STATE_RUNNING : gpuctl::v1::JOB_STATE_LOST;
    case Type::kExited:
      return locked ? gpuctl::v1::JOB_STATE_FINISHING : gpuctl::v1::JOB_STATE_FINISHED;
    case Type::kRetry:
      return locked ? gpuctl::v1::JOB_STATE_STARTING : gpuctl::v1::JOB_STATE_RETRY_WAIT;
    default:
      return gpuctl::v1::JOB_STATE_LOST;
  }
}

// Adds what the job has of the node's GPUs, or waits for.
void AddGpus(const Lifecycle& lifecycle, const gpuctl::v1::JobSpec& spec, Job& job) {
  const bool waits = job.state() == gpuctl::v1::JOB_STATE_PENDING ||
                     job.state() == gpuctl::v1::JOB_STATE_RETRY_WAIT;
  const LifecycleEvent* queued = waits && spec.gpus() > 0 ? QueuedEvent(lifecycle) : nullptr;
  if (queued != nullptr) {
    job.set_state(gpuctl::v1::JOB_STATE_QUEUED);
    job.mutable_queue()->set_gpus(spec.gpus());
    job.mutable_queue()->set_since_ms(QueuedSinceMs(lifecycle));
    job.mutable_queue()->set_needs_secrets(queued->reason == kSecretsReason);
    return;
  }
  const auto started = std::find_if(
      lifecycle.events.rbegin(), lifecycle.events.rend(),
      [](const LifecycleEvent& event) { return event.type == LifecycleEvent::Type::kStarted; });
  if (started == lifecycle.events.rend() || !started->gpus.has_value()) return;
  for (const std::string& gpu : *started->gpus) job.add_gpu_ids(gpu);
}

}  // namespace

absl::StatusOr<Job> DeriveJob(const JobPaths& paths) {
  ASSIGN_OR_RETURN(const StoredSpec stored, ReadStoredSpec(paths));
  return DeriveJob(paths, stored);
}

absl::StatusOr<Job> DeriveJob(const JobPaths& paths, const StoredSpec& stored) {
  // The lock is probed first. If the shim ends in between, its `exited` line makes the answer
  // "finishing", which the next look corrects. In the other order the job could look lost.
  ASSIGN_OR_RETURN(const bool locked, IsLocked(paths.lock));
  // What a gang's keeper records comes before it ends. While it lives, the job may go on.
  bool kept = false;
  if (stored.spec.has_gang()) {
    ASSIGN_OR_RETURN(kept, IsLocked(paths.gang_lock));
  }
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(paths));
  const LifecycleEvent* last = LastStateEvent(lifecycle);
  Job job;
  job.set_job_id(stored.spec.job_id());
  job.set_spec_digest(stored.spec_digest);
  job.set_state(StateOf(locked, last));
  if (kept && job.state() == gpuctl::v1::JOB_STATE_FINISHED) {
    job.set_state(gpuctl::v1::JOB_STATE_FINISHING);
  }
  AddGpus(lifecycle, stored.spec, job);
  if (last != nullptr) {
    job.set_attempt(last->attempt);
    if (last->type == LifecycleEvent::Type::kExited) job.set_exit_code(ShellExitCode(*last));
  }
  job.set_why(absl::StrCat("spec.json yes, shim.lock ", locked ? "held" : "free",
                           ", last lifecycle line ", EventName(last)));
  return job;
}

}  // namespace gpuctl
