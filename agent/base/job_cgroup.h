// A control group for a job's processes, where cgroup v2 exists and is writable (rarely in a rented
// container). It serves only to find and kill the processes of an attempt whose shim was lost, also
// those that emptied their environment. It limits nothing.
#ifndef GPUCTL_AGENT_BASE_JOB_CGROUP_H_
#define GPUCTL_AGENT_BASE_JOB_CGROUP_H_

#include <sys/types.h>

#include "absl/strings/string_view.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// Puts `pid`, and so its descendants, into a new group below ours, and notes that group in the
// job's directory. False when that is not possible.
bool EnterJobCgroup(const JobPaths& paths, absl::string_view job_id, pid_t pid);

// Asks the kernel to kill everything in the noted group. Does not wait.
void KillJobCgroup(const JobPaths& paths, absl::string_view job_id);

// True while the noted group has processes.
bool JobCgroupHasProcesses(const JobPaths& paths, absl::string_view job_id);

// Removes the noted group, which must be empty, and the note.
void RemoveJobCgroup(const JobPaths& paths, absl::string_view job_id);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_JOB_CGROUP_H_
