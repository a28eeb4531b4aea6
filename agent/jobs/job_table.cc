#include "agent/jobs/job_table.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/base/processes.h"
#include "agent/jobs/job_end.h"
#include "agent/jobs/job_removal.h"
#include "agent/trees/tree_store.h"
#include "agent/trees/work_merge.h"
#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/dir_walk.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/process/process.h"
#include "common/transfer/error_detail.h"

namespace gpuctl {

using gpuctl::v1::ErrorDetail;
using gpuctl::v1::Job;
using gpuctl::v1::RemoveJobReply;
using gpuctl::v1::RemoveJobRequest;
using gpuctl::v1::StartJobRequest;

namespace {

// The time after which a job is launched again when its shim did not come up.
constexpr absl::Duration kRelaunchAfter = absl::Seconds(2);
// The time in which the processes of a lost attempt must die of SIGKILL.
constexpr absl::Duration kSweepPatience = absl::Seconds(10);

Secrets ToSecrets(const StartJobRequest& request) {
  return Secrets(request.secrets().begin(), request.secrets().end());
}

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

// Returns FAILED_PRECONDITION for a job that may still do something.
absl::Status CheckOver(const JobPaths& job, const Job& state) {
  ASSIGN_OR_RETURN(const bool locked, IsLocked(job.lock));
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(job));
  if (!locked && IsOver(lifecycle)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("it is not over (", gpuctl::v1::JobState_Name(state.state()), ")"));
}

}  // namespace

absl::StatusOr<Lifecycle> ReadLifecycle(const JobPaths& paths) {
  absl::StatusOr<std::string> contents = ReadFileToString(paths.lifecycle);
  if (absl::IsNotFound(contents.status())) return Lifecycle{};
  if (!contents.ok()) return contents.status();
  return ParseLifecycle(*contents);
}

absl::StatusOr<Job> DeriveJob(const JobPaths& paths) {
  ASSIGN_OR_RETURN(const StoredSpec stored, ReadStoredSpec(paths));
  // The lock is probed first. If the shim ends in between, its `exited` line makes the answer
  // "finishing", which the next look corrects. In the other order the job could look lost.
  ASSIGN_OR_RETURN(const bool locked, IsLocked(paths.lock));
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(paths));
  const LifecycleEvent* last = LastStateEvent(lifecycle);
  Job job;
  job.set_job_id(stored.spec.job_id());
  job.set_spec_digest(stored.spec_digest);
  job.set_state(StateOf(locked, last));
  if (last != nullptr) {
    job.set_attempt(last->attempt);
    if (last->type == LifecycleEvent::Type::kExited) job.set_exit_code(ShellExitCode(*last));
  }
  job.set_why(absl::StrCat("spec.json yes, shim.lock ", locked ? "held" : "free",
                           ", last lifecycle line ", EventName(last)));
  return job;
}

absl::Status DetailedError(absl::StatusCode code, const std::string& message,
                           ErrorDetail::Kind kind, const std::string& node_id) {
  ErrorDetail detail;
  detail.set_kind(kind);
  detail.set_node_id(node_id);
  return WithDetail(absl::Status(code, message), detail);
}

JobTable::JobTable(RootPaths paths, std::string node_id, ShimLauncher& launcher, Clock& clock)
    : paths_(std::move(paths)), node_id_(std::move(node_id)), launcher_(launcher), clock_(clock) {}

absl::StatusOr<Job> JobTable::Start(const StartJobRequest& request) {
  const std::string& job_id = request.spec().job_id();
  if (!IsValidId(job_id)) return absl::InvalidArgumentError("start job: bad job id");
  if (request.spec().argv().empty()) {
    return absl::InvalidArgumentError(absl::StrCat("start job ", job_id, ": no command"));
  }
  MutexLock lock(mutex_);
  absl::StatusOr<Job> job = StartLocked(request);
  if (!job.ok()) return Annotate(job.status(), absl::StrCat("start job ", job_id));
  return job;
}

absl::Status JobTable::CheckIdentity(const StartJobRequest& request) {
  if (!request.expected_node_id().empty() && request.expected_node_id() != node_id_) {
    return DetailedError(absl::StatusCode::kFailedPrecondition,
                         absl::StrCat("this is node ", node_id_, ", not ",
                                      request.expected_node_id(), ": it was rebuilt"),
                         ErrorDetail::KIND_NODE_CHANGED, node_id_);
  }
  if (PathExists(Tombstone(request.spec().job_id()))) {
    return DetailedError(absl::StatusCode::kNotFound, "it ran here and was removed",
                         ErrorDetail::KIND_SWEPT, node_id_);
  }
  return absl::OkStatus();
}

absl::StatusOr<Job> JobTable::StartLocked(const StartJobRequest& request) {
  RETURN_IF_ERROR(CheckIdentity(request));
  const JobPaths job = paths_.Job(request.spec().job_id());
  absl::StatusOr<StoredSpec> stored = ReadStoredSpec(job);
  if (absl::IsNotFound(stored.status())) {
    RETURN_IF_ERROR(Accept(request));
    stored = ReadStoredSpec(job);
  }
  if (!stored.ok()) return stored.status();
  if (stored->spec_digest != request.spec_digest()) {
    return absl::AlreadyExistsError("the node has this job with another spec");
  }
  RETURN_IF_ERROR(LaunchIfDue(job, *stored, ToSecrets(request)));
  return DeriveJob(job);
}

absl::Status JobTable::Accept(const StartJobRequest& request) {
  const JobPaths job = paths_.Job(request.spec().job_id());
  RETURN_IF_ERROR(CheckContent(request.spec()));
  // A directory without spec.json was never accepted.
  RETURN_IF_ERROR(RemoveTree(job.dir));
  RETURN_IF_ERROR(MakeDirectories(job.dir));
  const absl::Status made = MakeWork(job, request.spec());
  if (absl::IsNotFound(made) || absl::IsDataLoss(made)) {
    // The tree was swept meanwhile or is damaged. It must be pushed again.
    (void)RemoveTree(job.dir);
    return ContentMissing(made.message());
  }
  RETURN_IF_ERROR(made);
  RETURN_IF_ERROR(MakeDirectories(job.checkpoints));
  RETURN_IF_ERROR(SyncDirectory(job.dir));
  RETURN_IF_ERROR(SyncDirectory(paths_.jobs));
  StoredSpec stored;
  stored.spec_digest = request.spec_digest();
  stored.spec = request.spec();
  return WriteFileAtomic(job.spec, FormatStoredSpec(stored));
}

absl::Status JobTable::ContentMissing(absl::string_view what) {
  return DetailedError(absl::StatusCode::kFailedPrecondition, std::string(what),
                       ErrorDetail::KIND_CONTENT_MISSING, node_id_);
}

absl::Status JobTable::CheckContent(const gpuctl::v1::JobSpec& spec) {
  std::vector<std::string> digests;
  if (!spec.manifest_digest().empty()) digests.push_back(spec.manifest_digest());
  for (const gpuctl::v1::DataTree& data : spec.data()) {
    if (!IsSafeRelativePath(data.path()) || !IsManifestDigest(data.manifest_digest())) {
      return absl::InvalidArgumentError(absl::StrCat("start job: bad data tree ", data.path()));
    }
    digests.push_back(data.manifest_digest());
  }
  for (const std::string& digest : digests) {
    if (!HasStoredTree(paths_.trees, digest)) {
      return ContentMissing(absl::StrCat("content ", digest, " is not on the node"));
    }
  }
  return absl::OkStatus();
}

// Makes work/, which appears complete, by a rename.
absl::Status JobTable::MakeWork(const JobPaths& job, const gpuctl::v1::JobSpec& spec) {
  const std::string partial = absl::StrCat(job.work, ".tmp");
  if (spec.manifest_digest().empty()) {
    RETURN_IF_ERROR(MakeDirectories(partial, 0755));
  } else {
    RETURN_IF_ERROR(
        CopyStoredTree(paths_.trees, spec.manifest_digest(), partial, WorkManifestPath(job)));
  }
  const UniqueFd partial_fd(file_ops::Open(partial, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (!partial_fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", partial));
  DirWalk walk(partial_fd.get(), 0755);
  for (const gpuctl::v1::DataTree& data : spec.data()) {
    // This does not follow a symlink in the work directory.
    RETURN_IF_ERROR(walk.OpenOrMake(ParentPath(data.path())).status());
    RETURN_IF_ERROR(
        LinkStoredTree(paths_.trees, data.manifest_digest(), JoinPath(partial, data.path())));
  }
  if (file_ops::Rename(partial, job.work) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename to ", job.work));
  }
  return absl::OkStatus();
}

absl::Status JobTable::LaunchIfDue(const JobPaths& job, const StoredSpec& stored,
                                   const Secrets& secrets) {
  for (const std::string& name : stored.spec.secret_names()) {
    if (secrets.count(name) == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("the value of secret ", name, " is missing"));
    }
  }
  ASSIGN_OR_RETURN(const bool locked, IsLocked(job.lock));
  if (locked) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(job));
  const LifecycleEvent* last = LastStateEvent(lifecycle);
  if (last == nullptr) return launcher_.Launch(job, 1, secrets);
  if (last->type == LifecycleEvent::Type::kRetry && IsDue(stored.spec.job_id(), *last)) {
    retry_seen_.erase(stored.spec.job_id());
    return launcher_.Launch(job, last->attempt, secrets);
  }
  return absl::OkStatus();
}

// The stamp stays valid over a restart of the server. A wall clock that was set back must not delay
// the job, so the pause also counts from the time when this server first saw the line.
bool JobTable::IsDue(const std::string& job_id, const LifecycleEvent& retry) {
  if (absl::ToUnixMillis(clock_.Now()) >= retry.not_before_ms) return true;
  const absl::Duration now = clock_.SinceBoot();
  const absl::Duration seen = retry_seen_.emplace(job_id, now).first->second;
  return now - seen >= absl::Milliseconds(retry.not_before_ms - retry.time_ms);
}

absl::StatusOr<Job> JobTable::Stop(absl::string_view job_id, absl::string_view reason) {
  if (!IsValidId(job_id)) return absl::InvalidArgumentError("stop job: bad job id");
  MutexLock lock(mutex_);
  const JobPaths job = paths_.Job(job_id);
  ASSIGN_OR_RETURN(const Job state, DeriveJob(job));
  if (state.state() == gpuctl::v1::JOB_STATE_RUNNING ||
      state.state() == gpuctl::v1::JOB_STATE_STARTING) {
    RETURN_IF_ERROR(Annotate(SendControl(job, absl::StrCat("stop ", reason, "\n")),
                             absl::StrCat("stop job ", job_id)));
  } else if (state.state() == gpuctl::v1::JOB_STATE_PENDING ||
             state.state() == gpuctl::v1::JOB_STATE_RETRY_WAIT) {
    // No shim runs it, so the server ends it as a shim would.
    RETURN_IF_ERROR(Annotate(EndUnstarted(job, reason, clock_), absl::StrCat("stop job ", job_id)));
  }
  return DeriveJob(job);
}

std::string JobTable::Tombstone(absl::string_view job_id) const {
  return JoinPath(paths_.tombstones, job_id);
}

absl::StatusOr<RemoveJobReply> JobTable::Remove(const RemoveJobRequest& request) {
  const std::string& job_id = request.job_id();
  if (!IsValidId(job_id)) return absl::InvalidArgumentError("remove job: bad job id");
  const std::string doing = absl::StrCat("remove job ", job_id);
  const JobPaths job = paths_.Job(job_id);
  RemoveJobReply reply;
  {
    MutexLock lock(mutex_);
    reply.set_removed(PathExists(Tombstone(job_id)));
    if (!reply.removed()) {
      absl::StatusOr<Job> state = DeriveJob(job);
      if (!state.ok()) return Annotate(state.status(), doing);
      *reply.mutable_job() = *std::move(state);
      RETURN_IF_ERROR(Annotate(CheckOver(job, reply.job()), doing));
      RETURN_IF_ERROR(Annotate(CheckUnused(job, job_id), doing));
      if (!request.dry_run()) RETURN_IF_ERROR(Annotate(Bury(job, job_id), doing));
    }
    if (request.dry_run() && reply.removed()) return reply;
    // Another thread removes it, or nothing is left.
    if (!request.dry_run() && (!PathExists(job.dir) || !removing_.insert(job_id).second)) {
      reply.set_removed(true);
      return reply;
    }
  }
  if (request.dry_run()) {
    RETURN_IF_ERROR(Annotate(MeasureJob(job, reply), doing));
    RETURN_IF_ERROR(Annotate(ListLeft(job, reply), doing));
    return reply;
  }
  // The mutex is not held, because this may take long. A job with this id is never accepted again.
  const absl::Status gone = RemoveTree(job.dir);
  reply.set_removed(true);
  MutexLock lock(mutex_);
  over_.erase(job_id);
  launched_at_.erase(job_id);
  retry_seen_.erase(job_id);
  removing_.erase(job_id);
  // A failed removal is not repeated every second.
  if (!gone.ok()) over_.insert(job_id);
  RETURN_IF_ERROR(Annotate(gone, doing));
  RETURN_IF_ERROR(SyncDirectory(paths_.jobs));
  return reply;
}

absl::Status JobTable::Bury(const JobPaths& job, const std::string& job_id) {
  // No shim and no sync can begin while these locks are held.
  const absl::StatusOr<UniqueFd> shim = TryLock(job.lock);
  const absl::StatusOr<UniqueFd> sync = TryLock(SyncLockPath(job));
  if (absl::IsUnavailable(shim.status()) || absl::IsUnavailable(sync.status())) {
    return absl::FailedPreconditionError("somebody is at work in its directory");
  }
  RETURN_IF_ERROR(shim.status());
  RETURN_IF_ERROR(sync.status());
  // One rename needs no room on a full disk, and leaves no moment at which the job could start
  // again.
  const std::string tombstone = Tombstone(job_id);
  if (file_ops::Rename(job.spec, tombstone) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename to ", tombstone));
  }
  RETURN_IF_ERROR(SyncDirectory(paths_.tombstones));
  RETURN_IF_ERROR(SyncDirectory(job.dir));
  // The tombstone's name is enough, so its content is removed.
  const UniqueFd stone(file_ops::Open(tombstone, O_WRONLY));
  if (stone.valid()) (void)file_ops::Truncate(stone.get(), 0);
  return absl::OkStatus();
}

std::vector<Job> JobTable::List() {
  std::vector<Job> jobs;
  absl::StatusOr<std::vector<std::string>> names = ListDirectory(paths_.jobs);
  if (!names.ok()) return jobs;
  for (const std::string& name : *names) {
    if (absl::StatusOr<Job> job = DeriveJob(paths_.Job(name)); job.ok()) {
      jobs.push_back(*std::move(job));
    }
  }
  return jobs;
}

void JobTable::Tend() {
  launcher_.Reap();
  MutexLock lock(mutex_);
  absl::StatusOr<std::vector<std::string>> names = ListDirectory(paths_.jobs);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (over_.count(name) == 0 && removing_.count(name) == 0) TendJob(name);
  }
}

void JobTable::TendJob(const std::string& job_id) {
  const JobPaths job = paths_.Job(job_id);
  absl::StatusOr<StoredSpec> stored = ReadStoredSpec(job);
  if (absl::IsNotFound(stored.status())) {
    // A failed removal of a buried job is not repeated every second.
    if (!RemoveTree(job.dir).ok() && PathExists(Tombstone(job_id))) over_.insert(job_id);
    return;
  }
  absl::Status status = stored.status();
  if (status.ok()) {
    absl::StatusOr<Job> state = DeriveJob(job);
    status = state.status();
    if (status.ok() && state->state() == gpuctl::v1::JOB_STATE_LOST) {
      status = WriteLost(job, *stored);
    } else if (status.ok() && state->state() == gpuctl::v1::JOB_STATE_FINISHED) {
      over_.insert(job_id);
    } else if (status.ok() && stored->spec.secret_names().empty() &&
               (state->state() == gpuctl::v1::JOB_STATE_PENDING ||
                state->state() == gpuctl::v1::JOB_STATE_RETRY_WAIT)) {
      const absl::Duration now = clock_.SinceBoot();
      const auto launched = launched_at_.find(job_id);
      if (launched == launched_at_.end() || now - launched->second >= kRelaunchAfter) {
        if (state->state() == gpuctl::v1::JOB_STATE_PENDING) launched_at_[job_id] = now;
        status = LaunchIfDue(job, *stored, {});
      }
    }
  }
  if (!status.ok()) {
    Log(LogLevel::kWarning, absl::StrCat("tend job ", job_id, ": ", status.ToString()));
  }
}

absl::Status JobTable::WriteLost(const JobPaths& job, const StoredSpec& stored) {
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
    over_.insert(stored.spec.job_id());
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(SweepJob(job, stored.spec.job_id(), kSweepPatience, clock_));
  LifecycleEvent lost;
  lost.type = LifecycleEvent::Type::kLost;
  lost.attempt = last->attempt;
  lost.boot_id = BootId();
  lost.reason = last->boot_id == lost.boot_id ? "the shim died" : "the machine restarted";
  return AppendEnd(job, stored.spec, std::move(lost), clock_);
}

}  // namespace gpuctl
