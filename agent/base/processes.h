// Finding the processes of a job without a pid file: by descent, and by the job's id in their
// environment.
#ifndef GPUCTL_AGENT_BASE_PROCESSES_H_
#define GPUCTL_AGENT_BASE_PROCESSES_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// The identity of a process, which differs from that of a later one with the same pid.
struct ProcessId {
  pid_t pid = 0;
  // Field 22 of /proc/<pid>/stat; on macOS microseconds since 1970.
  int64_t start_time_ticks = 0;
  bool operator==(const ProcessId&) const = default;
};

// Returns the identity of `pid`; start_time_ticks is 0 when it is gone.
ProcessId IdentityOf(pid_t pid);

// Returns the living descendants of `ancestor`, without itself and without zombies.
std::vector<ProcessId> Descendants(pid_t ancestor);

// Returns the living processes that were started with GPUCTL_JOB_ID=`job_id`, without this one.
std::vector<ProcessId> MarkedProcesses(absl::string_view job_id);

// Returns those of them that belong to the job: not the commands of `gpuctl exec`, which have its
// variables and GPUCTL_EXEC=1, and outlive it.
std::vector<ProcessId> JobProcesses(absl::string_view job_id);

// Returns the living processes that were started with `assignment` (NAME=value) in their
// environment, without this one.
std::vector<ProcessId> ProcessesWith(absl::string_view assignment);

// The result of one look at all processes.
struct ProcessSearch {
  std::vector<ProcessId> found;
  // There was a process whose environment could not be read yet: it was in exec, or was ending. It
  // may be one of those that were looked for.
  bool unsure = false;
};

// Look for what JobProcesses and ProcessesWith return.
ProcessSearch SearchJobProcesses(absl::string_view job_id);
ProcessSearch SearchProcessesWith(absl::string_view assignment);

// Finds out when a job's last process has ended, where this process does not adopt them. Not
// thread-safe.
class OrphanSearch {
 public:
  OrphanSearch(absl::string_view job_id, Clock& clock) : job_id_(job_id), clock_(clock) {}

  // Looks now. Returns how long to wait before the next look; nothing when no process of the job is
  // left. That takes two looks that find nothing, because a process may have a child, and end,
  // between the list and the look at it. What cannot be told counts as the job's for at most a
  // minute: it may be another program, in exec on a file system that hangs.
  std::optional<absl::Duration> Look();

 private:
  const std::string job_id_;
  Clock& clock_;
  int clean_looks_ = 0;
  absl::Duration unsure_since_ = absl::InfiniteDuration();  // since boot
};

// Kills those processes until none is left. DEADLINE_EXCEEDED when some are still there after
// `patience`.
absl::Status SweepProcessesWith(absl::string_view assignment, absl::Duration patience,
                                Clock& clock);

// True while it is the same process and not a zombie. A signal still reaches a zombie.
bool IsAlive(const ProcessId& process);

// True when a stopped process really stands still, or is gone: it may make a child after the signal
// until then.
bool StandsStill(const ProcessId& process);

// Sends `signal` if the process is still the same one. False when it is gone.
bool SendSignal(const ProcessId& process, int signal);

// Stops what `list` returns with SIGSTOP until nothing new appears. A process that makes others
// faster than that is left as it is. Returns what was stopped, parents first.
std::vector<ProcessId> Freeze(const std::function<ProcessSearch()>& list);

// Sends SIGTERM once to each process that `list` returns, also to those that are made meanwhile:
// many programs end at once after a second one. Returns what it was sent to.
std::vector<ProcessId> TerminateOnce(const std::function<ProcessSearch()>& list);

// Kills the processes that an earlier attempt of a job left, found by control group and by
// JobProcesses, and waits until all are gone. DEADLINE_EXCEEDED when some are still there after
// `patience`. The caller holds the job's lock.
absl::Status SweepJob(const JobPaths& paths, absl::string_view job_id, absl::Duration patience,
                      Clock& clock);
// Does the same for processes found by JobProcesses alone.
absl::Status SweepJob(absl::string_view job_id, absl::Duration patience, Clock& clock);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_PROCESSES_H_
