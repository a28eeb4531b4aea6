#include "agent/base/processes.h"

#include <signal.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "agent/base/job_cgroup.h"

namespace gpuctl {
namespace {

// Kills the marked processes, and others by `kill_more`, until none is left and `more_left` is
// false.
absl::Status Sweep(absl::string_view job_id, absl::Duration patience, Clock& clock,
                   const std::function<void()>& kill_more, const std::function<bool()>& more_left) {
  constexpr absl::Duration kInterval = absl::Milliseconds(2);
  const absl::Duration end = clock.SinceBoot() + patience;
  while (true) {
    kill_more();
    // The list is made anew each time, because a process may have forked before the signal.
    const std::vector<ProcessId> left = JobProcesses(job_id);
    if (left.empty() && !more_left()) return absl::OkStatus();
    for (const ProcessId& process : left) SendSignal(process, SIGKILL);
    if (clock.SinceBoot() >= end) {
      return absl::DeadlineExceededError(
          absl::StrCat("sweep job ", job_id, ": a process does not die",
                       left.empty() ? "" : absl::StrCat(" (", left.front().pid, ")")));
    }
    clock.SleepFor(kInterval);
  }
}

}  // namespace

absl::Status SweepJob(const JobPaths& paths, absl::string_view job_id, absl::Duration patience,
                      Clock& clock) {
  const absl::Status status = Sweep(
      job_id, patience, clock, [&] { KillJobCgroup(paths, job_id); },
      [&] { return JobCgroupHasProcesses(paths, job_id); });
  if (status.ok()) RemoveJobCgroup(paths, job_id);
  return status;
}

absl::Status SweepJob(absl::string_view job_id, absl::Duration patience, Clock& clock) {
  return Sweep(
      job_id, patience, clock, [] {}, [] { return false; });
}

}  // namespace gpuctl
