#include "agent/limits/limit_keeper.h"

#include <unistd.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/base/job_end.h"
#include "agent/jobs/job_table.h"
#include "agent/limits/contact.h"
#include "agent/limits/node_limits_store.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kLookAtLimitsEvery = absl::Seconds(1);
constexpr absl::Duration kNoteEvery = absl::Minutes(1);
// The interval between looks at ckpt/, which are expensive. News of results at home is seen at
// once.
constexpr absl::Duration kHomeLookEvery = absl::Seconds(10);

}  // namespace

absl::Duration RunningTime(const Lifecycle& lifecycle, const std::string& boot_id,
                           absl::Duration since_boot, int64_t ticks_per_s) {
  using Type = LifecycleEvent::Type;
  absl::Duration total;
  const LifecycleEvent* running = nullptr;
  for (const LifecycleEvent& event : lifecycle.events) {
    if (event.type == Type::kStarted) {
      running = &event;
    } else if ((event.type == Type::kExited || event.type == Type::kLost) && running != nullptr) {
      total += std::max(absl::ZeroDuration(), absl::Milliseconds(event.time_ms - running->time_ms));
      running = nullptr;
    }
  }
  if (running != nullptr && running->boot_id == boot_id && ticks_per_s > 0) {
    total += since_boot - absl::Seconds(static_cast<double>(running->start_time_ticks) /
                                        static_cast<double>(ticks_per_s));
  }
  return total;
}

LimitKeeper::LimitKeeper(const RootPaths& paths, Clock& clock, std::string boot_id)
    : paths_(paths), clock_(clock), boot_id_(std::move(boot_id)), note_(ReadClockNote(paths)) {}

void LimitKeeper::Enforce() {
  const absl::Duration now = clock_.SinceBoot();
  if (now < next_look_) return;
  next_look_ = now + kLookAtLimitsEvery;
  EnforceLease();
  absl::StatusOr<std::vector<std::string>> names = ListDirectory(paths_.jobs);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (done_.count(name) == 0) EnforceTime(name);
    if (no_alerts_.count(name) == 0) EnforceAlerts(name);
  }
}

void LimitKeeper::EnforceLease() {
  release_due_.clear();
  const TimeStamp now = StampNow(boot_id_, clock_);
  const absl::StatusOr<StoredLimits> stored = ReadNodeLimits(paths_);
  if (!stored.ok()) {
    if (clock_.SinceBoot() >= next_note_) {
      ClockNote next;
      next.at = now;
      CountTraffic(note_, ReadNetworkCounters(), next);
      note_ = next;
      NoteClock(*note_);
    }
    return;
  }
  const JobCensus census = TakeCensus(paths_);
  const bool live = !census.live.empty();
  // While a job runs, contact changes nothing.
  const bool contact = !live && InContact(paths_);
  const int64_t known_revision = note_.has_value() ? note_->revision : 0;
  const int64_t known_jobs_over = note_.has_value() ? note_->jobs_over : 0;
  ClockNote next = Advance(note_, *stored, census, contact, LastContact(paths_), now);
  CountTraffic(note_, ReadNetworkCounters(), next);
  note_ = next;
  // Who reads the note counts on from it, and takes a job that is not in it for one that ended now.
  if (clock_.SinceBoot() >= next_note_ || note_->revision != known_revision ||
      note_->jobs_over != known_jobs_over || live != noted_live_ || contact != noted_contact_) {
    NoteClock(*note_);
    noted_live_ = live;
    noted_contact_ = contact;
  }
  NodeFacts facts{note_->billed, note_->no_job, note_->no_contact,
                  live,          true,          TrafficUsd(stored->limits, *note_)};
  if (!live) facts.results_home = AllHome(stored->limits, census);
  const NodeAction action = NextAction(stored->limits, facts);
  if (action.in > absl::ZeroDuration()) return;
  if (action.kind == NodeAction::Kind::kStopJobs) StopJobs(census.live, action.reason);
  if (action.kind == NodeAction::Kind::kRelease) release_due_ = action.reason;
}

void LimitKeeper::StopJobs(const std::vector<std::string>& job_ids, const std::string& reason) {
  for (const std::string& job_id : job_ids) {
    const JobPaths job = paths_.Job(job_id);
    const absl::StatusOr<gpuctl::v1::Job> state = DeriveJob(job);
    if (!state.ok()) continue;
    absl::Status sent;
    if (state->state() == gpuctl::v1::JOB_STATE_RUNNING) {
      if (told_[job_id] == state->attempt()) continue;
      sent = SendControl(job, absl::StrCat("stop ", reason, "\n"));
      if (sent.ok()) told_[job_id] = state->attempt();
    } else if (state->state() == gpuctl::v1::JOB_STATE_PENDING ||
               state->state() == gpuctl::v1::JOB_STATE_RETRY_WAIT ||
               state->state() == gpuctl::v1::JOB_STATE_QUEUED) {
      sent = EndUnstarted(job, reason, clock_);
    } else {
      continue;
    }
    Log(LogLevel::kInfo,
        absl::StrCat("guard: job ", job_id, " is stopped, ", reason, ": ", sent.ToString()));
  }
}

bool LimitKeeper::AllHome(const gpuctl::v1::NodeLimits& limits, const JobCensus& census) {
  std::string state = absl::StrCat(limits.revision(), " ", absl::StrJoin(census.with_results, " "));
  absl::StrAppend(&state, " ", ReadFileToString(paths_.home, 1 << 20).value_or(""), " ",
                  ReadFileToString(paths_.contact, 4096).value_or(""));
  const absl::Duration now = clock_.SinceBoot();
  if (state != home_state_ || now >= next_home_look_) {
    home_state_ = std::move(state);
    next_home_look_ = now + kHomeLookEvery;
    all_home_ = ResultsHome(paths_, limits, census.with_results);
  }
  return all_home_;
}

void LimitKeeper::EnforceTime(const std::string& job_id) {
  const JobPaths job = paths_.Job(job_id);
  absl::StatusOr<StoredSpec> stored = ReadStoredSpec(job);
  if (!stored.ok()) return;
  const absl::Duration limit = TimeLimitOf(job, stored->spec);
  absl::StatusOr<gpuctl::v1::Job> state = DeriveJob(job);
  if (limit <= absl::ZeroDuration() ||
      (state.ok() && state->state() == gpuctl::v1::JOB_STATE_FINISHED)) {
    done_.insert(job_id);
    return;
  }
  if (!state.ok() || state->state() != gpuctl::v1::JOB_STATE_RUNNING ||
      told_[job_id] == state->attempt()) {
    return;
  }
  absl::StatusOr<Lifecycle> lifecycle = ReadLifecycle(job);
  if (!lifecycle.ok() ||
      RunningTime(*lifecycle, boot_id_, clock_.SinceBoot(), sysconf(_SC_CLK_TCK)) < limit) {
    return;
  }
  const absl::Status sent = SendControl(job, "stop limit:time\n");
  Log(LogLevel::kInfo,
      absl::StrCat("guard: job ", job_id, " reached its time limit: ", sent.ToString()));
  if (sent.ok()) told_[job_id] = state->attempt();
}

void LimitKeeper::EnforceAlerts(const std::string& job_id) {
  const JobPaths job = paths_.Job(job_id);
  if (alerts_.count(job_id) == 0) {
    const absl::StatusOr<StoredSpec> stored = ReadStoredSpec(job);
    if (!stored.ok()) return;
    if (!HasAlerts(stored->spec)) {
      no_alerts_.insert(job_id);
      return;
    }
    alerts_.emplace(std::piecewise_construct, std::forward_as_tuple(job_id),
                    std::forward_as_tuple(job, stored->spec));
  }
  const absl::StatusOr<gpuctl::v1::Job> state = DeriveJob(job);
  if (!state.ok()) return;
  if (state->state() == gpuctl::v1::JOB_STATE_FINISHED) {
    alerts_.erase(job_id);
    no_alerts_.insert(job_id);
    return;
  }
  if (state->state() != gpuctl::v1::JOB_STATE_RUNNING || told_[job_id] == state->attempt()) return;
  const absl::StatusOr<Lifecycle> lifecycle = ReadLifecycle(job);
  if (!lifecycle.ok()) return;
  const std::optional<std::string> why = alerts_.at(job_id).Look(*lifecycle);
  if (!why.has_value()) return;
  const absl::Status sent = SendControl(job, absl::StrCat("stop ", kAlertPrefix, *why, "\n"));
  Log(LogLevel::kInfo, absl::StrCat("guard: job ", job_id, ": ", *why, ": ", sent.ToString()));
  if (sent.ok()) told_[job_id] = state->attempt();
}

void LimitKeeper::NoteClock(const ClockNote& note) {
  next_note_ = clock_.SinceBoot() + kNoteEvery;
  const absl::Status status = WriteClockNote(paths_, note);
  if (!status.ok()) Log(LogLevel::kWarning, absl::StrCat("guard: ", status.message()));
}

}  // namespace gpuctl
