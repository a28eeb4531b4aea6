// The jobs that begin and end with those of other nodes: the members of gangs.
#include "absl/strings/str_cat.h"
#include "agent/base/gang_note.h"
#include "agent/base/job_end.h"
#include "agent/gang/keeper.h"
#include "agent/jobs/job_table.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"

namespace gpuctl {

using gpuctl::v1::Job;

namespace {

// The time in which a keeper that begins must listen, or must hold its lock.
constexpr absl::Duration kKeeperPatience = absl::Seconds(5);
constexpr absl::Duration kKeeperInterval = absl::Milliseconds(20);
constexpr char kKeeperDied[] = "gang:the process that holds it together has died here";

}  // namespace

absl::Status JobTable::SeatMember(const JobPaths& job, const gpuctl::v1::StartJobRequest& request) {
  ASSIGN_OR_RETURN(const bool kept, IsLocked(job.gang_lock));
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(job));
  if (kept || launcher_.IsKept(job) || LastStateEvent(lifecycle) != nullptr) {
    return absl::OkStatus();
  }
  unkept_since_.erase(request.spec().job_id());
  return launcher_.LaunchKeeper(job, FormatGangTicket(request.gang()));
}

absl::Status JobTable::AddGangPlace(const JobPaths& job, Job& answer) {
  const absl::Duration deadline = clock_.SinceBoot() + kKeeperPatience;
  for (;;) {
    const absl::StatusOr<GangNote> note = ReadGangNote(job);
    if (note.ok()) {
      gpuctl::v1::GangPlace& place = *answer.mutable_gang();
      place.mutable_addresses()->Assign(note->meeting_addresses.begin(),
                                        note->meeting_addresses.end());
      place.set_port(note->meeting_port);
      return absl::OkStatus();
    }
    if (answer.state() == gpuctl::v1::JOB_STATE_FINISHED) return absl::OkStatus();
    if (clock_.SinceBoot() >= deadline) {
      return absl::UnavailableError("the process that holds it together does not listen");
    }
    clock_.SleepFor(kKeeperInterval);
  }
}

absl::StatusOr<bool> JobTable::EndUnkept(const JobPaths& job, const Job& state) {
  if (state.state() == gpuctl::v1::JOB_STATE_FINISHED ||
      state.state() == gpuctl::v1::JOB_STATE_FINISHING ||
      state.state() == gpuctl::v1::JOB_STATE_LOST) {
    return false;
  }
  ASSIGN_OR_RETURN(const bool locked, IsLocked(job.gang_lock));
  {
    MutexLock lock(mutex_);
    if (locked || launcher_.IsKept(job)) {
      unkept_since_.erase(state.job_id());
      return false;
    }
    // It was accepted a moment ago, or its keeper has just recorded its end.
    const absl::Duration now = clock_.SinceBoot();
    const absl::Duration since = unkept_since_.emplace(state.job_id(), now).first->second;
    if (now - since < kKeeperPatience) return false;
  }
  const bool begun = state.state() == gpuctl::v1::JOB_STATE_RUNNING ||
                     state.state() == gpuctl::v1::JOB_STATE_STARTING;
  const absl::Status ended = begun ? SendControl(job, absl::StrCat("stop ", kKeeperDied, "\n"))
                                   : EndUnstarted(job, kKeeperDied, clock_);
  // Its shim begins, or has just ended.
  if (absl::IsFailedPrecondition(ended) || absl::IsAborted(ended)) return false;
  RETURN_IF_ERROR(ended);
  return true;
}

}  // namespace gpuctl
