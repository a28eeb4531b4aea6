#include "agent/base/processes.h"

#include <signal.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "agent/base/job_cgroup.h"

namespace gpuctl {
namespace {

// Kills the listed processes, and others by `kill_more`, until none is left and `more_left` is
// false.
absl::Status Sweep(absl::string_view what, absl::Duration patience, Clock& clock,
                   const std::function<std::vector<ProcessId>()>& list,
                   const std::function<void()>& kill_more, const std::function<bool()>& more_left) {
  constexpr absl::Duration kInterval = absl::Milliseconds(2);
  const absl::Duration end = clock.SinceBoot() + patience;
  while (true) {
    kill_more();
    // The list is made anew each time, because a process may have forked before the signal.
    const std::vector<ProcessId> left = list();
    if (left.empty() && !more_left()) return absl::OkStatus();
    for (const ProcessId& process : left) SendSignal(process, SIGKILL);
    if (clock.SinceBoot() >= end) {
      return absl::DeadlineExceededError(
          absl::StrCat("sweep ", what, ": a process does not die",
                       left.empty() ? "" : absl::StrCat(" (", left.front().pid, ")")));
    }
    clock.SleepFor(kInterval);
  }
}

}  // namespace

absl::Status SweepJob(const JobPaths& paths, absl::string_view job_id, absl::Duration patience,
                      Clock& clock) {
  const absl::Status status = Sweep(
      absl::StrCat("job ", job_id), patience, clock, [&] { return JobProcesses(job_id); },
      [&] { KillJobCgroup(paths, job_id); }, [&] { return JobCgroupHasProcesses(paths, job_id); });
  if (status.ok()) RemoveJobCgroup(paths, job_id);
  return status;
}

absl::Status SweepJob(absl::string_view job_id, absl::Duration patience, Clock& clock) {
  return Sweep(
      absl::StrCat("job ", job_id), patience, clock, [&] { return JobProcesses(job_id); }, [] {},
      [] { return false; });
}

absl::Status SweepProcessesWith(absl::string_view assignment, absl::Duration patience,
                                Clock& clock) {
  return Sweep(
      assignment, patience, clock, [&] { return ProcessesWith(assignment); }, [] {},
      [] { return false; });
}

}  // namespace gpuctl
