// The waits of a Follower: between links, while suspended, and for another process's mirror.
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/streams/beside.h"
#include "client/streams/follower.h"
#include "client/streams/follower_live.h"
#include "common/base/status_macros.h"
#include "common/job/lifecycle.h"

namespace gpuctl {
namespace {

// Interval at which a follower reads the mirror that another process writes.
constexpr absl::Duration kLookEvery = absl::Milliseconds(100);
constexpr char kWriterIsStuck[] =
    "another gpuctl has this run's files here and does not go on (was it stopped with Ctrl-Z?); "
    "what is here may be behind";

}  // namespace

void Follower::Stop() {
  MutexLock lock(live_->mutex);
  live_->stop = true;
  if (live_->link != nullptr) live_->link->Break();
  live_->changed.NotifyAll();
}

bool Follower::Pause(absl::Duration duration) {
  const absl::Duration end = clock_.SinceBoot() + duration;
  MutexLock lock(live_->mutex);
  while (!live_->stop && !live_->suspended) {
    const absl::Duration left = end - clock_.SinceBoot();
    if (left <= absl::ZeroDuration()) return true;
    live_->changed.WaitFor(live_->mutex, left);
  }
  return !live_->stop;
}

void Follower::Suspend(absl::Duration patience) {
  if (!accepted_) return;
  const absl::Duration end = clock_.SinceBoot() + patience;
  MutexLock lock(live_->mutex);
  live_->suspended = true;
  live_->parked.reset();
  if (live_->link != nullptr) live_->link->Break();
  live_->changed.NotifyAll();
  while (!live_->released && !live_->stop) {
    const absl::Duration left = end - clock_.SinceBoot();
    if (left <= absl::ZeroDuration()) return;
    live_->changed.WaitFor(live_->mutex, left);
  }
}

void Follower::Resume() {
  MutexLock lock(live_->mutex);
  live_->suspended = false;
  live_->changed.NotifyAll();
}

void Follower::RestWhileSuspended() {
  if (!live_->resting()) return;
  mirror_.reset();
  MutexLock lock(live_->mutex);
  live_->released = true;
  live_->changed.NotifyAll();
  while (live_->suspended && !live_->stop) live_->changed.Wait(live_->mutex);
  live_->released = false;
}

// Makes a link. Meanwhile Suspend can release the mirror.
absl::StatusOr<std::unique_ptr<Link>> Follower::Connect() {
  const auto connect = [this] {
    return options_.shares_connection ? links_.ConnectForCalls() : links_.Connect();
  };
  if (!accepted_) return connect();
  {
    MutexLock lock(live_->mutex);
    if (!live_->suspended) live_->parked = std::move(mirror_);
    mirror_.reset();  // closes it when nobody parked it
    live_->released = true;
    live_->changed.NotifyAll();
  }
  absl::StatusOr<std::unique_ptr<Link>> link = connect();
  MutexLock lock(live_->mutex);
  mirror_ = std::move(live_->parked);
  live_->released = false;
  return link;
}

absl::StatusOr<bool> Follower::TakeMirror() {
  if (mirror_ != nullptr) return true;
  absl::StatusOr<std::unique_ptr<Mirror>> mirror =
      Mirror::Open(options_.mirror_dir, options_.output_segment_bytes);
  if (absl::IsUnavailable(mirror.status())) return false;
  if (!mirror.ok()) return Annotate(mirror.status(), "open mirror");
  mirror_ = *std::move(mirror);
  return true;
}

// Follows the mirror that another gpuctl of this laptop writes, until that one releases it. Ends
// when that one is stuck and the node says that the job is over.
absl::StatusOr<bool> Follower::FollowOther(const std::function<bool()>& until) {
  Beside::Options options{options_.job_id, options_.mirror_dir, options_.output_segment_bytes,
                          options_.ask_beside_after};
  Beside beside(
      std::move(options), links_, [this](Link* link) { live_->SetLink(link); }, clock_);
  bool told = false;
  absl::Duration last_good = clock_.SinceBoot();  // it grew, or the node answered
  while (Pause(kLookEvery) && !live_->resting()) {
    ASSIGN_OR_RETURN(const bool grew, beside.Look());
    if (grew) last_good = clock_.SinceBoot();
    observer_.OnOther(grew);
    if (until && until()) return true;
    ASSIGN_OR_RETURN(const bool complete,
                     MirrorIsComplete(options_.mirror_dir, options_.output_segment_bytes));
    if (complete && !options_.of_several) return true;
    ASSIGN_OR_RETURN(const bool mine, TakeMirror());
    if (mine) {
      observer_.OnMirrorTaken();
      return false;
    }
    if (beside.AskIsDue()) {
      const absl::StatusOr<JobAnswer> answer = beside.Ask();
      observer_.OnAnswer(answer);
      if (answer.ok()) last_good = clock_.SinceBoot();
      if (complete && answer.ok() &&
          answer->heartbeat.job().state() == gpuctl::v1::JOB_STATE_FINISHED) {
        return true;
      }
      if (!answer.ok() && clock_.SinceBoot() - last_good >= options_.give_up_after) {
        return Annotate(answer.status(), absl::StrCat("follow job ", options_.job_id));
      }
    }
    if (!beside.WriterIsStuck()) continue;
    if (!std::exchange(told, true)) observer_.OnNotice(kWriterIsStuck);
    ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadMirrorLifecycle(options_.mirror_dir));
    if (IsOver(lifecycle) && !options_.of_several) return true;
  }
  return false;
}

}  // namespace gpuctl
