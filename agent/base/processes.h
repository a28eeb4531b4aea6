// The processes of a job, found without a pid file: by descent, and by the job's id in their
// environment.
#ifndef GPUCTL_AGENT_BASE_PROCESSES_H_
#define GPUCTL_AGENT_BASE_PROCESSES_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// A process and not another one that got its number later.
struct ProcessId {
  pid_t pid = 0;
  int64_t start_time_ticks = 0;  // field 22 of /proc/<pid>/stat
  bool operator==(const ProcessId&) const = default;
};

// `pid`'s identity; start_time_ticks is 0 where there is no /proc.
ProcessId IdentityOf(pid_t pid);

// Living descendants of `ancestor`, itself not among them; zombies are left out.
std::vector<ProcessId> Descendants(pid_t ancestor);

// Living processes, this one not among them, that were started with GPUCTL_JOB_ID=`job_id`.
std::vector<ProcessId> MarkedProcesses(absl::string_view job_id);

// True while it is the same process and not a zombie, which a signal still reaches.
bool IsAlive(const ProcessId& process);

// Sends `signal` if the process is still the same one. False when it is gone.
bool SendSignal(const ProcessId& process, int signal);

// Kills what an earlier attempt of a job left behind, found by its control group and by its marker,
// and waits until all of it has vanished. DEADLINE_EXCEEDED when something is still there after
// `patience`. The caller holds the job's lock.
absl::Status SweepJob(const JobPaths& paths, absl::string_view job_id, absl::Duration patience,
                      Clock& clock);
// By the marker alone.
absl::Status SweepJob(absl::string_view job_id, absl::Duration patience, Clock& clock);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_PROCESSES_H_
