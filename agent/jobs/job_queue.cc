// The jobs that wait for GPUs.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/base/gpu_grant.h"
#include "agent/jobs/job_accept.h"
#include "agent/jobs/job_table.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/transfer/error_detail.h"

namespace gpuctl {

using gpuctl::v1::ErrorDetail;
using gpuctl::v1::Job;
using gpuctl::v1::JobQueue;

namespace {

// The time that a driver has to list the GPUs after the start of the server.
constexpr absl::Duration kListPatience = absl::Seconds(15);
constexpr absl::Duration kListInterval = absl::Milliseconds(50);

std::string SomeGpus(int64_t count) {
  return count == 0 ? "no GPU" : absl::StrCat(count, count == 1 ? " GPU" : " GPUs");
}

}  // namespace

// The claims of all live jobs at a moment.
struct JobTable::Survey {
  struct Entry {
    int attempt = 0;
    std::optional<LifecycleEvent> queued;
  };
  HeldGpus held;
  std::vector<WaitingJob> waiting;
  std::map<std::string, Entry> entries;  // of those that wait
};

absl::Status JobTable::CheckGpus(const gpuctl::v1::JobSpec& spec) {
  if (spec.gpus() < 0) return absl::InvalidArgumentError("bad number of GPUs");
  if (spec.gpus() == 0) return absl::OkStatus();
  for (const std::string& name : spec.secret_names()) {
    if (name == "CUDA_VISIBLE_DEVICES") {
      return absl::InvalidArgumentError("a secret cannot name the GPUs of a job that gets some");
    }
  }
  const size_t wanted = static_cast<size_t>(spec.gpus());
  const absl::Duration deadline = clock_.SinceBoot() + kListPatience;
  NodeGpus gpus = list_gpus_();
  while (gpus.names.size() < wanted && !gpus.complete && clock_.SinceBoot() < deadline) {
    clock_.SleepFor(kListInterval);
    gpus = list_gpus_();
  }
  if (gpus.names.size() >= wanted) return absl::OkStatus();
  return DetailedError(
      absl::StatusCode::kOutOfRange,
      absl::StrCat("it asks for ", SomeGpus(spec.gpus()), ", and the node has ",
                   SomeGpus(static_cast<int64_t>(gpus.names.size())), " to give",
                   gpus.complete || !gpus.names.empty() ? "" : ": nvidia-smi does not list any"),
      ErrorDetail::KIND_TOO_FEW_GPUS, node_id_);
}

JobTable::Survey JobTable::SurveyGpus() {
  Survey survey;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(paths_.jobs);
  if (!names.ok()) {
    Log(LogLevel::kWarning, absl::StrCat("queue: ", names.status().message()));
    survey.held.all = true;  // what cannot be read may run
    return survey;
  }
  for (const std::string& name : *names) {
    if (over_.count(name) != 0 || busy_.count(name) != 0) continue;
    if (!absl::EndsWith(name, kPreparedEnding)) AddToSurvey(name, survey);
  }
  return survey;
}

void JobTable::AddToSurvey(const std::string& name, Survey& survey) {
  const JobPaths job = paths_.Job(name);
  auto wish = wishes_.find(name);
  if (wish == wishes_.end()) {
    const absl::StatusOr<StoredSpec> stored = ReadStoredSpec(job);
    if (stored.ok() && stored->spec.job_id() != name) return;  // a copy of a job
    if (stored.ok()) wish = wishes_.emplace(name, WishOf(stored->spec)).first;
  }
  const absl::StatusOr<GpuClaim> claim =
      wish == wishes_.end() ? absl::DataLossError("no spec")
                            : ReadGpuClaim(job, wish->second, launcher_.IsStarting(job));
  if (!claim.ok()) {
    // A shim whose job's files are damaged may have any GPU.
    if (const absl::StatusOr<bool> locked = IsLocked(job.lock); !locked.ok() || *locked) {
      survey.held.all = true;
      survey.held.all_by = name;
    }
    return;
  }
  switch (claim->kind) {
    case GpuClaim::Kind::kNone:
      if (claim->over) wishes_.erase(name);
      return;
    case GpuClaim::Kind::kSome:
      survey.held.gpus.insert(claim->gpus.begin(), claim->gpus.end());
      return;
    case GpuClaim::Kind::kAll:
      survey.held.all = true;
      survey.held.all_by = name;
      return;
    case GpuClaim::Kind::kWaits:
      AddWaiting(name, wish->second, *claim, survey);
      return;
  }
}

void JobTable::AddWaiting(const std::string& job_id, const GpuWish& wish, const GpuClaim& claim,
                          Survey& survey) {
  if (PathExists(paths_.Job(job_id).stop)) return;
  if (claim.retry.has_value() && !IsDue(job_id, *claim.retry)) return;
  WaitingJob waiting;
  waiting.needs_secrets = wish.has_secrets && secrets_.count(job_id) == 0;
  // Only a client can begin a retry that needs secrets, and until then nobody knows that it wants.
  if (waiting.needs_secrets && claim.retry.has_value() && !claim.queued.has_value()) return;
  waiting.job_id = job_id;
  waiting.gpus = wish.gpus.value_or(0);
  const absl::Duration now = clock_.SinceBoot();
  waiting.waited = now - queue_seen_.emplace(job_id, now).first->second;
  if (claim.queued.has_value()) {
    waiting.ticket = claim.queued->ticket;
    waiting.since_ms = claim.queued_since_ms;
    // The line is valid over a restart of the server. A wall clock that was set back must not
    // lengthen the wait, so it also counts from when this server first saw the job.
    const int64_t waited_ms = absl::ToUnixMillis(clock_.Now()) - waiting.since_ms;
    waiting.waited = std::max(waiting.waited, absl::Milliseconds(waited_ms));
  }
  survey.waiting.push_back(std::move(waiting));
  survey.entries[job_id] = {claim.attempt, claim.queued};
}

QueuePlan JobTable::Plan(Survey& survey) {
  // A job that comes is behind all that wait.
  int64_t last = 0;
  for (const WaitingJob& job : survey.waiting) last = std::max(last, job.ticket);
  for (WaitingJob& job : survey.waiting) {
    if (job.ticket == 0) job.ticket = ++last;
  }
  const NodeGpus gpus = list_gpus_();
  const bool listing = !gpus.complete && clock_.SinceBoot() < started_ + kListPatience;
  QueuePlan plan = PlanQueue(gpus.names, survey.held, survey.waiting, listing);
  places_ = plan.waits;
  return plan;
}

absl::Status JobTable::WriteQueued(const std::string& job_id, const Survey& survey) {
  const auto waiting =
      std::find_if(survey.waiting.begin(), survey.waiting.end(),
                   [&job_id](const WaitingJob& job) { return job.job_id == job_id; });
  const Survey::Entry& entry = survey.entries.at(job_id);
  const std::string reason = waiting->needs_secrets ? kSecretsReason : "";
  if (entry.queued.has_value() && entry.queued->reason == reason) return absl::OkStatus();
  LifecycleEvent queued;
  queued.attempt = entry.attempt;
  queued.ticket = waiting->ticket;
  queued.reason = reason;
  const absl::Status written = AppendQueued(paths_.Job(job_id), std::move(queued), clock_);
  // It has begun, or has ended, meanwhile.
  return absl::IsAborted(written) ? absl::OkStatus() : written;
}

absl::StatusOr<bool> JobTable::GrantOrQueue(const std::string& job_id) {
  Survey survey = SurveyGpus();
  const auto entry = survey.entries.find(job_id);
  if (entry == survey.entries.end()) return false;
  const QueuePlan plan = Plan(survey);
  const auto start = plan.starts.find(job_id);
  if (start == plan.starts.end()) {
    RETURN_IF_ERROR(WriteQueued(job_id, survey));
    return false;
  }
  RETURN_IF_ERROR(WriteGpuGrant(paths_.Job(job_id), {entry->second.attempt, start->second}));
  queue_seen_.erase(job_id);
  return true;
}

void JobTable::TendQueue() {
  MutexLock lock(mutex_);
  Survey survey = SurveyGpus();
  const QueuePlan plan = Plan(survey);
  for (const auto& [job_id, gpus] : plan.starts) {
    const JobPaths job = paths_.Job(job_id);
    const int attempt = survey.entries.at(job_id).attempt;
    absl::Status status = WriteGpuGrant(job, {attempt, gpus});
    if (status.ok()) {
      queue_seen_.erase(job_id);
      // Its keeper hears of it, and lets it begin with the others.
      if (wishes_.at(job_id).in_gang) continue;
      const auto secrets = secrets_.find(job_id);
      status = LaunchAttempt(job, job_id, attempt,
                             secrets == secrets_.end() ? Secrets() : secrets->second);
      ForgetSecrets(job_id);
    }
    if (!status.ok()) {
      Log(LogLevel::kWarning, absl::StrCat("queue: start ", job_id, ": ", status.message()));
    }
  }
  for (const auto& [job_id, place] : plan.waits) {
    const absl::Status status = WriteQueued(job_id, survey);
    if (!status.ok()) {
      Log(LogLevel::kWarning, absl::StrCat("queue: ", job_id, ": ", status.message()));
    }
  }
}

absl::Status JobTable::RequeueWithoutSecrets(const JobPaths& job, int attempt) {
  LifecycleEvent queued;
  queued.attempt = attempt;
  queued.reason = kSecretsReason;
  if (const auto lifecycle = ReadLifecycle(job); lifecycle.ok()) {
    const LifecycleEvent* before = QueuedEvent(*lifecycle);
    queued.ticket = before == nullptr ? 0 : before->ticket;
  }
  const absl::Status revoked = RevokeGrant(job, std::move(queued), clock_);
  return absl::IsAborted(revoked) ? absl::OkStatus() : revoked;
}

std::map<std::string, Secrets> JobTable::GiveSecrets() {
  MutexLock lock(mutex_);
  return std::exchange(secrets_, {});
}

void JobTable::TakeSecrets(std::map<std::string, Secrets> secrets) {
  MutexLock lock(mutex_);
  for (auto& [job_id, values] : secrets) {
    const absl::StatusOr<StoredSpec> stored =
        IsValidId(job_id) ? ReadStoredSpec(paths_.Job(job_id)) : absl::NotFoundError("no job");
    const bool whole =
        stored.ok() &&
        std::all_of(stored->spec.secret_names().begin(), stored->spec.secret_names().end(),
                    [&own = values](const std::string& name) { return own.count(name) != 0; });
    secrets_[job_id] = std::move(values);
    if (!whole) ForgetSecrets(job_id);
  }
}

void JobTable::ForgetSecrets(const std::string& job_id) {
  const auto found = secrets_.find(job_id);
  if (found == secrets_.end()) return;
  for (auto& [name, value] : found->second) std::fill(value.begin(), value.end(), '\0');
  secrets_.erase(found);
}

std::optional<gpuctl::v1::GpuSlots> JobTable::Slots() {
  const NodeGpus gpus = list_gpus_();
  if (!gpus.complete) return std::nullopt;
  MutexLock lock(mutex_);
  const Survey survey = SurveyGpus();
  gpuctl::v1::GpuSlots slots;
  slots.set_total(static_cast<int32_t>(gpus.names.size()));
  slots.set_free(PlanQueue(gpus.names, survey.held, {}).free_gpus);
  slots.set_queued_jobs(static_cast<int32_t>(survey.waiting.size()));
  return slots;
}

void JobTable::AddPlace(Job& job) {
  if (job.state() != gpuctl::v1::JOB_STATE_QUEUED) return;
  MutexLock lock(mutex_);
  const auto place = places_.find(job.job_id());
  if (place == places_.end()) return;
  const JobQueue derived = job.queue();
  *job.mutable_queue() = place->second;
  job.mutable_queue()->set_since_ms(derived.since_ms());
  job.mutable_queue()->set_needs_secrets(derived.needs_secrets());
}

}  // namespace gpuctl
