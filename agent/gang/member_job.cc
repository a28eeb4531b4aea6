#include "agent/gang/member_job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/base/gpu_grant.h"
#include "agent/base/job_end.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/job/checkpoint.h"
#include "common/job/lifecycle.h"
#include "common/job/stream_file.h"

namespace gpuctl {
namespace {

using Type = LifecycleEvent::Type;

constexpr absl::Duration kShimGoneWithin = absl::Seconds(15);
constexpr absl::Duration kLookAgain = absl::Milliseconds(20);
// The newest ones are read and hashed; of the others names and sizes are right. A member that is
// far behind may have only older ones.
constexpr size_t kMostHashed = 3;
constexpr size_t kMostCheckpoints = 256;
// The control FIFO's lines are short (agent/shim/control.h), and a reason has names of users.
constexpr size_t kMostReasonBytes = 600;
// Of the output, in which a script says why it failed.
constexpr int64_t kTailBytes = 16 << 10;

std::string OneLine(std::string reason) {
  for (char& c : reason) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  if (reason.size() > kMostReasonBytes) reason.resize(kMostReasonBytes);
  // Words of the control FIFO that mean something else.
  if (reason.empty() || reason == "now") reason = absl::StrCat(kGangPrefix, "ended ", reason);
  return reason;
}

// Waits until the job's shim, or whoever looks at its lock, is done.
absl::StatusOr<UniqueFd> TakeShimLock(const JobPaths& paths, Clock& clock) {
  const absl::Duration end = clock.SinceBoot() + kShimGoneWithin;
  for (;;) {
    absl::StatusOr<UniqueFd> lock = TryLock(paths.lock);
    if (!absl::IsUnavailable(lock.status()) || clock.SinceBoot() >= end) return lock;
    clock.SleepFor(kLookAgain);
  }
}

}  // namespace

bool MemberJob::HasGpus(int attempt) const {
  if (stored_.spec.gpus() <= 0) return true;
  const absl::StatusOr<GpuGrant> grant = ReadGpuGrant(paths_);
  return grant.ok() && grant->attempt == attempt;
}

bool MemberJob::RetriesLost(int attempt) const {
  LifecycleEvent lost;
  lost.type = Type::kLost;
  lost.attempt = attempt;
  return WantsRetry(stored_.spec.retry(), lost);
}

bool MemberJob::MayRetry(int attempt, int more) const {
  const MemberView view = Look(attempt);
  const bool stopped = view.end.has_value() && view.end->reason == "user";
  return !stopped && attempt <= int64_t{stored_.spec.retry().max_retries()} + more;
}

MemberView MemberJob::Look(int attempt) const {
  MemberView view;
  const absl::StatusOr<Lifecycle> lifecycle = ReadLifecycle(paths_);
  if (!lifecycle.ok()) return view;
  for (const LifecycleEvent& event : lifecycle->events) {
    if (event.type == Type::kRetry && event.attempt == attempt + 1 && view.end.has_value()) {
      view.end->retry = true;
      view.end->delay_ms = std::max<int64_t>(0, event.not_before_ms - event.time_ms);
    }
    if (event.attempt != attempt) continue;
    if (event.type == Type::kStarted) view.begun = true;
    if (event.type == Type::kStopping) view.stopping = event.reason;
    if (event.type != Type::kExited && event.type != Type::kLost) continue;
    GangEnd end;
    end.lost = event.type == Type::kLost;
    end.code = end.lost ? 1 : ShellExitCode(event);
    if (!end.lost) end.reason = event.reason;
    view.end = end;
  }
  return view;
}

void MemberJob::End(int attempt, const std::string& reason) {
  const std::string line = OneLine(reason);
  const absl::StatusOr<bool> locked = IsLocked(paths_.lock);
  if (locked.ok() && !*locked) {
    // It may have ended since the last look: then what has not started is the next attempt.
    if (!Look(attempt).end.has_value()) (void)EndUnstarted(paths_, line, clock_);
    return;
  }
  if (told_ == attempt) return;
  // No reader: the shim begins, or has just ended.
  if (SendControl(paths_, absl::StrCat("stop ", line, "\n")).ok()) told_ = attempt;
}

absl::Status MemberJob::Conclude(int attempt, const GangOutcome& outcome) {
  if (outcome.rank < 0 || outcome.rank == gang().rank()) return absl::OkStatus();
  const std::string reason = OneLine(outcome.reason);
  const bool foreign = absl::StartsWith(reason, kGangPrefix);
  ASSIGN_OR_RETURN(const UniqueFd lock, TakeShimLock(paths_, clock_));
  const MemberView view = Look(attempt);
  if (!view.end.has_value() || view.end->lost) return absl::OkStatus();
  if (view.end->reason == reason && (!foreign || view.end->code == outcome.code)) {
    return absl::OkStatus();
  }
  LifecycleEvent end;
  end.type = Type::kExited;
  end.attempt = attempt;
  end.exit_code = outcome.code;
  end.reason = reason;
  return AppendEnd(paths_, stored_.spec, std::move(end), clock_);
}

absl::Status MemberJob::Announce(int attempt, int64_t delay_ms) {
  ASSIGN_OR_RETURN(const UniqueFd lock, TakeShimLock(paths_, clock_));
  const MemberView view = Look(attempt);
  if (!view.end.has_value()) {
    return absl::FailedPreconditionError("announce the next attempt: this one has not ended");
  }
  if (view.end->retry) return absl::OkStatus();
  return AppendRetry(paths_, stored_.spec, attempt + 1, delay_ms, clock_);
}

bool MemberJob::SaysPortWasTaken(int port) const {
  StreamReader reader(paths_.output, OutputShape(stored_.spec));
  const absl::StatusOr<Extent> extent = reader.GetExtent();
  if (!extent.ok()) return false;
  int64_t offset = std::max(extent->first_offset, extent->size - kTailBytes);
  std::string tail;
  while (offset < extent->size) {
    char buffer[4096];
    const absl::StatusOr<int64_t> got = reader.Read(offset, buffer, sizeof(buffer));
    if (!got.ok() || *got <= 0) break;
    tail.append(buffer, static_cast<size_t>(*got));
    offset += *got;
  }
  absl::AsciiStrToLower(&tail);
  return absl::StrContains(tail, absl::StrCat(port)) &&
         (absl::StrContains(tail, "address already in use") ||
          absl::StrContains(tail, "eaddrinuse"));
}

std::vector<int64_t> MemberJob::WholeSteps(const JobPaths& paths) {
  std::vector<int64_t> steps;
  absl::StatusOr<std::vector<CheckpointDir>> all = ListCheckpoints(paths.checkpoints);
  if (!all.ok()) return steps;
  std::sort(all->begin(), all->end(), [](const CheckpointDir& a, const CheckpointDir& b) {
    return a.manifest.step > b.manifest.step;
  });
  for (const CheckpointDir& one : *all) {
    if (steps.size() >= kMostCheckpoints) break;
    if (steps.size() >= kMostHashed || VerifyCheckpoint(one).ok()) {
      steps.push_back(one.manifest.step);
    }
  }
  return steps;
}

}  // namespace gpuctl
