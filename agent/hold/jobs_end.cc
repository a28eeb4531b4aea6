#include "agent/hold/jobs_end.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "agent/base/held_root.h"
#include "agent/base/job_end.h"
#include "agent/base/processes.h"
#include "agent/jobs/job_table.h"
#include "common/base/log.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/release/release_route.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kDefaultGrace = absl::Seconds(30);
// The time after the grace in which shims record the end of what they have killed.
constexpr absl::Duration kRecordWithin = absl::Seconds(5);
constexpr absl::Duration kKillEvery = absl::Milliseconds(20);
constexpr absl::Duration kShimsWithin = absl::Seconds(12);
constexpr absl::Duration kLookEvery = absl::Milliseconds(200);
constexpr absl::Duration kSweepWithin = absl::Seconds(1);

std::vector<std::string> JobsOf(const RootPaths& paths) {
  return ListDirectory(paths.jobs).value_or(std::vector<std::string>());
}

}  // namespace

absl::Duration HoldGrace() {
  const char* text = getenv(kHoldGraceVariable);
  int seconds = 0;
  const bool given = text != nullptr && absl::SimpleAtoi(text, &seconds) && seconds >= 0;
  return given ? absl::Seconds(seconds) : kDefaultGrace;
}

JobsEnd::JobsEnd(const RootPaths& paths, absl::Duration grace, Clock& clock)
    : paths_(paths), clock_(clock), grace_end_(clock.SinceBoot() + grace) {}

void JobsEnd::Hurry(absl::Duration left) {
  grace_end_ = std::min(grace_end_, clock_.SinceBoot() + left);
}

bool JobsEnd::Proceed() {
  const absl::Duration now = clock_.SinceBoot();
  // They have told nobody yet that they must be quick.
  if (now >= grace_end_ && !last_words_) {
    told_.clear();
    last_words_ = true;
  }
  bool over = true;
  for (const std::string& job_id : JobsOf(paths_)) over = Tell(job_id) && over;
  return over || now >= grace_end_ + kRecordWithin;
}

bool JobsEnd::Tell(const std::string& job_id) {
  const JobPaths job = paths_.Job(job_id);
  const absl::StatusOr<gpuctl::v1::Job> state = DeriveJob(job);
  if (!state.ok() || state->state() == gpuctl::v1::JOB_STATE_FINISHED) return true;
  const bool first = seen_.insert(job_id).second;
  // Without a shim there is nothing to stop; the server kills what is left, or KillRest does.
  if (state->state() == gpuctl::v1::JOB_STATE_LOST) return true;
  // On disk, so that no attempt begins any more.
  if (first) (void)WriteFileAtomic(job.stop, absl::StrCat(kAllocationEndsReason, "\n"));
  if (state->state() == gpuctl::v1::JOB_STATE_PENDING ||
      state->state() == gpuctl::v1::JOB_STATE_RETRY_WAIT ||
      state->state() == gpuctl::v1::JOB_STATE_QUEUED) {
    if (GoesOnAfterwards(paths_, job_id)) return true;
    return EndUnstarted(job, kAllocationEndsReason, clock_).ok();
  }
  const auto told = told_.find(job_id);
  if (told != told_.end() && told->second == state->attempt()) return false;
  std::string words = absl::StrCat("stop ", kAllocationEndsReason, "\n");
  if (last_words_) words += "stop now\n";
  const absl::Status sent = SendControl(job, words);
  // A job that is starting has no attempt yet.
  if (sent.ok() && state->state() != gpuctl::v1::JOB_STATE_STARTING) {
    told_[job_id] = state->attempt();
    Log(LogLevel::kInfo,
        absl::StrCat("hold: job ", job_id, last_words_ ? " is killed" : " is stopped", ", ",
                     kAllocationEndsReason));
  }
  return false;
}

void JobsEnd::KillRest(absl::Duration patience) {
  const absl::Duration end = clock_.SinceBoot() + patience;
  for (;;) {
    const std::vector<ProcessId> rest = Descendants(getpid());
    for (const ProcessId& process : rest) SendSignal(process, SIGKILL);
    if (rest.empty() || clock_.SinceBoot() >= end) break;
    clock_.SleepFor(kKillEvery);
  }
  for (const std::string& job_id : seen_) {
    const absl::Duration left = std::max(end - clock_.SinceBoot(), kKillEvery);
    const absl::Status swept = SweepJob(paths_.Job(job_id), job_id, left, clock_);
    if (!swept.ok()) Log(LogLevel::kError, absl::StrCat("hold: ", swept.message()));
  }
}

void SweepWithoutHolder(const RootPaths& paths, Clock& clock) {
  const std::vector<std::string> jobs = JobsOf(paths);
  const absl::Duration end = clock.SinceBoot() + kShimsWithin;
  for (const std::string& job_id : jobs) {
    const JobPaths job = paths.Job(job_id);
    while (IsLocked(job.lock).value_or(false) && clock.SinceBoot() < end) {
      clock.SleepFor(kLookEvery);
    }
  }
  for (const std::string& job_id : jobs) {
    const absl::StatusOr<gpuctl::v1::Job> state = DeriveJob(paths.Job(job_id));
    if (state.ok() && state->state() == gpuctl::v1::JOB_STATE_FINISHED) continue;
    const absl::Status swept = SweepJob(paths.Job(job_id), job_id, kSweepWithin, clock);
    if (!swept.ok()) Log(LogLevel::kError, absl::StrCat("server: ", swept.message()));
  }
}

}  // namespace gpuctl
