// A control group for a job's processes, where cgroup v2 is there and writable (rarely in a rented
// container). It only serves to find and kill what an attempt left behind after its shim was lost,
// processes that emptied their environment included; it limits nothing.
#ifndef GPUCTL_AGENT_BASE_JOB_CGROUP_H_
#define GPUCTL_AGENT_BASE_JOB_CGROUP_H_

#include <sys/types.h>

#include "absl/strings/string_view.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// Puts `pid`, and so its descendants, into a group of its own below ours; where that is, is noted
// in the job's directory. False when it cannot be done.
bool EnterJobCgroup(const JobPaths& paths, absl::string_view job_id, pid_t pid);

// Asks the kernel to kill everything in the noted group. Asynchronous.
void KillJobCgroup(const JobPaths& paths, absl::string_view job_id);

// True while somebody is in the noted group.
bool JobCgroupHasProcesses(const JobPaths& paths, absl::string_view job_id);

// Removes the group, which is empty now, and the note.
void RemoveJobCgroup(const JobPaths& paths, absl::string_view job_id);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_JOB_CGROUP_H_
