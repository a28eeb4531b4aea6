#include "agent/jobs/job_table.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "agent/base/gang_note.h"
#include "agent/base/job_end.h"
#include "agent/base/processes.h"
#include "agent/gang/keeper.h"
#include "agent/jobs/job_accept.h"
#include "agent/jobs/job_removal.h"
#include "agent/store/given_data.h"
#include "agent/trees/work_merge.h"
#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/process/process.h"
#include "common/transfer/error_detail.h"

namespace gpuctl {

using gpuctl::v1::ErrorDetail;
using gpuctl::v1::Job;
using gpuctl::v1::RemoveJobReply;
using gpuctl::v1::RemoveJobRequest;
using gpuctl::v1::StartJobRequest;

namespace {

// The time in which a shim that begins must listen.
constexpr absl::Duration kStopPatience = absl::Seconds(5);
constexpr absl::Duration kStopInterval = absl::Milliseconds(10);

Secrets ToSecrets(const StartJobRequest& request) {
  return Secrets(request.secrets().begin(), request.secrets().end());
}

// Returns FAILED_PRECONDITION for a job that may still do something.
absl::Status CheckOver(const JobPaths& job, const Job& state) {
  ASSIGN_OR_RETURN(const bool locked, IsLocked(job.lock));
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(job));
  if (!locked && IsOver(lifecycle)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("it is not over (",
                   absl::AsciiStrToLower(
                       absl::StripPrefix(gpuctl::v1::JobState_Name(state.state()), "JOB_STATE_")),
                   ")"));
}

// True when the newest attempt was told to end, or no other may begin.
absl::StatusOr<bool> IsBeingStopped(const JobPaths& job) {
  if (PathExists(job.stop)) return true;
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(job));
  for (auto event = lifecycle.events.rbegin(); event != lifecycle.events.rend(); ++event) {
    if (event->type == LifecycleEvent::Type::kStarted) return false;
    if (event->type == LifecycleEvent::Type::kStopping) return true;
  }
  return false;
}

}  // namespace

JobTable::JobTable(RootPaths paths, std::string node_id, ShimLauncher& launcher, Clock& clock,
                   ListGpus gpus)
    : paths_(std::move(paths)),
      node_id_(std::move(node_id)),
      launcher_(launcher),
      clock_(clock),
      list_gpus_(gpus ? std::move(gpus) : [] { return NodeGpus{{}, true}; }),
      started_(clock_.SinceBoot()) {}

absl::StatusOr<Job> JobTable::Start(const StartJobRequest& request) {
  const std::string& job_id = request.spec().job_id();
  if (!IsValidId(job_id)) return absl::InvalidArgumentError("start job: bad job id");
  if (request.spec().argv().empty()) {
    return absl::InvalidArgumentError(absl::StrCat("start job ", job_id, ": no command"));
  }
  absl::Status accepted;
  if (request.spec().has_gang()) accepted = CheckGang(request.spec().gang(), request.gang());
  if (accepted.ok()) accepted = Accept(request);
  absl::StatusOr<Job> job = accepted.ok() ? Launch(request) : accepted;
  if (job.ok() && request.spec().has_gang() && request.spec().gang().rank() == 0) {
    const absl::Status listens = AddGangPlace(paths_.Job(job_id), *job);
    if (!listens.ok()) job = listens;
  }
  if (!job.ok()) return Annotate(job.status(), absl::StrCat("start job ", job_id));
  AddPlace(*job);
  return job;
}

absl::Status JobTable::CheckNode(const std::string& expected) {
  if (expected.empty() || expected == node_id_) return absl::OkStatus();
  return DetailedError(
      absl::StatusCode::kFailedPrecondition,
      absl::StrCat("this is node ", node_id_, ", not ", expected, ": it was rebuilt"),
      ErrorDetail::KIND_NODE_CHANGED, node_id_);
}

absl::Status JobTable::CheckIdentity(const StartJobRequest& request) {
  RETURN_IF_ERROR(CheckNode(request.expected_node_id()));
  if (PathExists(Tombstone(request.spec().job_id()))) {
    return DetailedError(absl::StatusCode::kNotFound, "it was stopped or removed here",
                         ErrorDetail::KIND_SWEPT, node_id_);
  }
  return absl::OkStatus();
}

// Waits until no other thread copies or removes the job's directory.
absl::Status JobTable::Reserve(const StartJobRequest& request) {
  const std::string& job_id = request.spec().job_id();
  RETURN_IF_ERROR(CheckIdentity(request));
  while (busy_.count(job_id) != 0) changed_.Wait(mutex_);
  RETURN_IF_ERROR(CheckIdentity(request));
  if (!PathExists(paths_.Job(job_id).spec)) busy_.insert(job_id);
  return absl::OkStatus();
}

void JobTable::Release(const std::string& job_id) {
  busy_.erase(job_id);
  changed_.NotifyAll();
}

absl::Status JobTable::Accept(const StartJobRequest& request) {
  const std::string& job_id = request.spec().job_id();
  bool accepting = false;
  {
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(Reserve(request));
    accepting = busy_.count(job_id) != 0;
  }
  if (!accepting) return absl::OkStatus();
  StoredSpec stored;
  stored.spec_digest = request.spec_digest();
  stored.spec = request.spec();
  // The mutex is not held, because the copy may take long.
  absl::Status accepted = CheckGpus(stored.spec);
  if (accepted.ok()) accepted = PrepareJob(paths_, node_id_, stored);
  MutexLock lock(mutex_);
  // A StopJob that came meanwhile left a tombstone. Tend removes what was prepared.
  accepted.Update(CheckIdentity(request));
  if (accepted.ok()) accepted = CommitJob(paths_, job_id);
  Release(job_id);
  return accepted;
}

absl::StatusOr<Job> JobTable::Launch(const StartJobRequest& request) {
  const JobPaths job = paths_.Job(request.spec().job_id());
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(const StoredSpec stored, ReadStoredSpec(job));
  if (stored.spec_digest != request.spec_digest()) {
    return absl::AlreadyExistsError("the node has this job with another spec");
  }
  if (stored.spec.has_gang()) RETURN_IF_ERROR(SeatMember(job, request));
  RETURN_IF_ERROR(LaunchIfDue(job, stored, ToSecrets(request)));
  return DeriveJob(job);
}

bool JobTable::IsAccepting(const std::string& job_id) {
  MutexLock lock(mutex_);
  return busy_.count(job_id) != 0 && !PathExists(Tombstone(job_id));
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
  const std::string& job_id = stored.spec.job_id();
  if (last != nullptr && last->type != LifecycleEvent::Type::kRetry) return absl::OkStatus();
  if (last != nullptr && !IsDue(job_id, *last)) return absl::OkStatus();
  const int attempt = last == nullptr ? 1 : last->attempt;
  if (stored.spec.gpus() > 0 && !HasGrant(job, attempt)) {
    if (!secrets.empty()) secrets_[job_id] = secrets;
    ASSIGN_OR_RETURN(const bool granted, GrantOrQueue(job_id));
    if (!granted) return absl::OkStatus();
  }
  if (stored.spec.has_gang() && !HasGangNote(job, attempt)) {
    if (!secrets.empty()) secrets_[job_id] = secrets;
    return absl::OkStatus();
  }
  ForgetSecrets(job_id);
  return LaunchAttempt(job, job_id, attempt, secrets);
}

absl::Status JobTable::LaunchAttempt(const JobPaths& job, const std::string& job_id, int attempt,
                                     const Secrets& secrets) {
  retry_seen_.erase(job_id);
  Launches& launches = launches_[job_id];
  if (launches.attempt != attempt) launches = {attempt, 0, absl::ZeroDuration()};
  ++launches.count;
  launches.last = clock_.SinceBoot();
  return launcher_.Launch(job, attempt, secrets);
}

// The stamp stays valid over a restart of the server. A wall clock that was set back must not delay
// the job, so the pause also counts from the time when this server first saw the line.
bool JobTable::IsDue(const std::string& job_id, const LifecycleEvent& retry) {
  if (absl::ToUnixMillis(clock_.Now()) >= retry.not_before_ms) return true;
  const absl::Duration now = clock_.SinceBoot();
  const absl::Duration seen = retry_seen_.emplace(job_id, now).first->second;
  return now - seen >= absl::Milliseconds(retry.not_before_ms - retry.time_ms);
}

absl::StatusOr<Job> JobTable::Stop(const gpuctl::v1::StopJobRequest& request) {
  const std::string& job_id = request.job_id();
  if (!IsValidId(job_id)) return absl::InvalidArgumentError("stop job: bad job id");
  const absl::Status here = CheckNode(request.expected_node_id());
  const absl::StatusOr<Job> job =
      here.ok() ? StopNow(paths_.Job(job_id), job_id, request.reason()) : here;
  if (!job.ok()) return Annotate(job.status(), absl::StrCat("stop job ", job_id));
  return job;
}

absl::StatusOr<Job> JobTable::StopNow(const JobPaths& job, const std::string& job_id,
                                      absl::string_view reason) {
  {
    MutexLock lock(mutex_);
    if (!PathExists(job.spec) && PathExists(job.dir) && !PathExists(Tombstone(job_id))) {
      (void)SendControl(job, absl::StrCat("stop ", reason, "\n"));
      return absl::DataLossError(
          "its spec.json is gone; its shim, if there is one, was told to stop");
    }
    if (!PathExists(job.spec)) {
      // It was never accepted. A StartJob that is on its way, or copies now, is refused from here
      // on.
      RETURN_IF_ERROR(WriteFileAtomic(Tombstone(job_id), ""));
      return absl::NotFoundError("the node has no such job");
    }
  }
  const absl::Duration deadline = clock_.SinceBoot() + kStopPatience;
  bool noted = false;
  for (;;) {
    ASSIGN_OR_RETURN(Job state, DeriveJob(job));
    const bool begun = state.state() == gpuctl::v1::JOB_STATE_RUNNING ||
                       state.state() == gpuctl::v1::JOB_STATE_STARTING;
    const bool waits = state.state() == gpuctl::v1::JOB_STATE_PENDING ||
                       state.state() == gpuctl::v1::JOB_STATE_RETRY_WAIT ||
                       state.state() == gpuctl::v1::JOB_STATE_QUEUED;
    if (state.state() == gpuctl::v1::JOB_STATE_FINISHED) return state;
    // On disk, because the attempt may be past its last look at the FIFO, and be retried. A full
    // disk must not keep a job from being stopped.
    if (!std::exchange(noted, true)) (void)WriteFileAtomic(job.stop, absl::StrCat(reason, "\n"));
    if (!begun && !waits) return state;
    // No shim runs a job that waits, so the server ends it as a shim would.
    const absl::Status told = begun ? SendControl(job, absl::StrCat("stop ", reason, "\n"))
                                    : EndUnstarted(job, reason, clock_);
    if (told.ok()) {
      // Others come forward in the queue.
      if (state.state() == gpuctl::v1::JOB_STATE_QUEUED) TendQueue();
      MutexLock lock(mutex_);
      ForgetSecrets(job_id);
      return DeriveJob(job);
    }
    // Its shim has just begun, or has just ended.
    const bool may_change = absl::IsFailedPrecondition(told) || absl::IsAborted(told);
    if (!may_change || clock_.SinceBoot() >= deadline) return told;
    clock_.SleepFor(kStopInterval);
  }
}

absl::StatusOr<Job> JobTable::SetTime(const gpuctl::v1::SetJobTimeRequest& request) {
  const std::string& job_id = request.job_id();
  if (!IsValidId(job_id)) return absl::InvalidArgumentError("set the job's time: bad job id");
  const std::string doing = absl::StrCat("set the time of job ", job_id);
  if (request.time_s() <= 0) return absl::InvalidArgumentError(absl::StrCat(doing, ": it is 0"));
  RETURN_IF_ERROR(Annotate(CheckNode(request.expected_node_id()), doing));
  const JobPaths job = paths_.Job(job_id);
  // RemoveJob takes the directory away under this lock.
  MutexLock lock(mutex_);
  if (!PathExists(job.spec)) {
    return absl::NotFoundError(absl::StrCat(doing, ": the node has no such job"));
  }
  ASSIGN_OR_RETURN(const Job state, DeriveJob(job));
  if (state.state() == gpuctl::v1::JOB_STATE_FINISHED ||
      state.state() == gpuctl::v1::JOB_STATE_FINISHING ||
      state.state() == gpuctl::v1::JOB_STATE_LOST) {
    return absl::FailedPreconditionError(absl::StrCat(doing, ": it is over"));
  }
  ASSIGN_OR_RETURN(const bool stopping, IsBeingStopped(job));
  if (stopping) {
    return absl::FailedPreconditionError(absl::StrCat(doing, ": it is being stopped"));
  }
  RETURN_IF_ERROR(
      Annotate(WriteFileAtomic(job.time_limit, absl::StrCat(request.time_s(), "\n")), doing));
  return state;
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
  const absl::StatusOr<StoredSpec> stored = ReadStoredSpec(job);  // it will be buried
  {
    MutexLock lock(mutex_);
    reply.set_removed(PathExists(Tombstone(job_id)));
    if (!reply.removed()) {
      absl::StatusOr<Job> state = DeriveJob(job);
      if (!state.ok()) return Annotate(state.status(), doing);
      *reply.mutable_job() = *std::move(state);
      if (launcher_.JobsMayLive()) {
        RETURN_IF_ERROR(Annotate(CheckOver(job, reply.job()), doing));
      }
      RETURN_IF_ERROR(Annotate(CheckUnused(job, job_id), doing));
      if (!request.dry_run()) RETURN_IF_ERROR(Annotate(Bury(job, job_id), doing));
    }
    if (request.dry_run() && reply.removed()) return reply;
    // Another thread removes it, or nothing is left.
    if (!request.dry_run() && (!PathExists(job.dir) || !busy_.insert(job_id).second)) {
      reply.set_removed(true);
      return reply;
    }
  }
  if (request.dry_run()) {
    const std::vector<std::string> patterns(request.patterns().begin(), request.patterns().end());
    RETURN_IF_ERROR(Annotate(MeasureJob(job, reply), doing));
    RETURN_IF_ERROR(Annotate(ListLeft(job, patterns, reply), doing));
    return reply;
  }
  // The mutex is not held, because this may take long. A job with this id is never accepted again.
  if (stored.ok()) TakeBackData(paths_, job, stored->spec);
  const absl::Status gone = RemoveTree(job.dir);
  reply.set_removed(true);
  MutexLock lock(mutex_);
  over_.erase(job_id);
  launches_.erase(job_id);
  retry_seen_.erase(job_id);
  sweep_again_.erase(job_id);
  wishes_.erase(job_id);
  unkept_since_.erase(job_id);
  queue_seen_.erase(job_id);
  ForgetSecrets(job_id);
  Release(job_id);
  // A failed removal is not repeated every second.
  if (!gone.ok()) over_[job_id];
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
    if (absl::StatusOr<Job> job = Known(name); job.ok()) jobs.push_back(*std::move(job));
  }
  return jobs;
}

std::vector<Job> JobTable::ListAfter(const std::string& after_job_id, size_t limit) {
  std::vector<Job> jobs;
  absl::StatusOr<std::vector<std::string>> names = ListDirectory(paths_.jobs);
  if (!names.ok()) return jobs;
  std::sort(names->begin(), names->end());
  auto name = std::upper_bound(names->begin(), names->end(), after_job_id);
  for (; name != names->end() && jobs.size() < limit; ++name) {
    if (absl::StatusOr<Job> job = Known(*name); job.ok()) jobs.push_back(*std::move(job));
  }
  return jobs;
}

std::vector<Job> JobTable::ListLive(const std::vector<std::string>& also) {
  const std::set<std::string> wanted(also.begin(), also.end());
  std::vector<Job> jobs;
  absl::StatusOr<std::vector<std::string>> names = ListDirectory(paths_.jobs);
  if (!names.ok()) return jobs;
  // Tend begins at the front, so a new server has read all of them in half the time.
  std::reverse(names->begin(), names->end());
  for (const std::string& name : *names) {
    const bool asked = wanted.count(name) != 0;
    {
      MutexLock lock(mutex_);
      if (!asked && over_.count(name) != 0) continue;
    }
    absl::StatusOr<Job> job = Known(name);
    if (!job.ok()) continue;
    if (asked || job->state() != gpuctl::v1::JOB_STATE_FINISHED) jobs.push_back(*std::move(job));
  }
  return jobs;
}

std::vector<Job> JobTable::ListWithin(size_t bytes) {
  std::vector<Job> every = List();
  std::stable_partition(every.begin(), every.end(), [](const Job& job) {
    return job.state() != gpuctl::v1::JOB_STATE_FINISHED &&
           job.state() != gpuctl::v1::JOB_STATE_LOST;
  });
  // A message in another one has a tag and its length.
  constexpr size_t kFrame = 8;
  size_t used = 0, count = 0;
  while (count < every.size() && used + every[count].ByteSizeLong() + kFrame <= bytes) {
    used += every[count++].ByteSizeLong() + kFrame;
  }
  every.resize(count);
  return every;
}

// Returns the job of this directory; NOT_FOUND for a directory that is no job, such as a copy of
// one.
absl::StatusOr<Job> JobTable::Known(const std::string& name) {
  {
    MutexLock lock(mutex_);
    const auto over = over_.find(name);
    if (over != over_.end() && over->second.job_id() == name) return over->second;
  }
  ASSIGN_OR_RETURN(Job job, DeriveJob(paths_.Job(name)));
  if (job.job_id() != name) return absl::NotFoundError(absl::StrCat(name, " is a copy of a job"));
  AddPlace(job);
  if (job.state() == gpuctl::v1::JOB_STATE_FINISHED) {
    MutexLock lock(mutex_);
    if (PathExists(paths_.Job(name).spec)) over_[name] = job;  // else it was buried meanwhile
  }
  return job;
}

}  // namespace gpuctl
