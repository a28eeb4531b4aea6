#include "agent/base/job_cgroup.h"

namespace gpuctl {

bool EnterJobCgroup(const JobPaths&, absl::string_view, pid_t) { return false; }
void KillJobCgroup(const JobPaths&, absl::string_view) {}
bool JobCgroupHasProcesses(const JobPaths&, absl::string_view) { return false; }
void RemoveJobCgroup(const JobPaths&, absl::string_view) {}

}  // namespace gpuctl
