// The Python packages of an environment, read from its directories; no Python is started.
#ifndef GPUCTL_AGENT_ENVS_PACKAGES_H_
#define GPUCTL_AGENT_ENVS_PACKAGES_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "common/base/unique_fd.h"

namespace gpuctl {

// Returns "NAME==VERSION" for each distribution (*.dist-info, *.egg-info) in these site-packages,
// sorted by name; of two with one name the first directory's. At most 5,000.
std::vector<std::string> PackagesIn(const std::vector<std::string>& site_packages);

// Returns the site-packages (or dist-packages) of the Python environment at `prefix`.
std::vector<std::string> SitePackagesOf(const std::string& prefix);

// Returns the directories in which the Python of the environment at `prefix` finds packages, the
// first one first: its own, those of its own version if there are several; and those of the system
// if the environment was made to see them.
std::vector<std::string> SitePackagesSeenFrom(const std::string& prefix);

// Returns the version of the environment's Python, as exact as its files say: "3.11.7" or "3.11";
// "" when it has none.
std::string PythonVersionOf(const std::string& prefix);

// Returns the packages that these processes' Pythons find, the version of Python first: those of
// the virtual environments that they were started from, else those of the Python itself; and those
// of directories from which they have loaded libraries. Nothing where processes cannot be looked
// at. Looks at the first 200 processes only.
std::vector<std::string> PackagesOfProcesses(const std::vector<pid_t>& pids);

// Does that in a process of its own, because a file system that hangs must hold up neither a job's
// output nor its end. Returns the non-blocking end of a pipe to which the process writes lifecycle
// lines `packages` of this attempt; it lives for 20 seconds at most. Invalid when it could not be
// started. Only for a process without threads.
UniqueFd ListPackagesApart(const std::vector<pid_t>& pids, int attempt);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_ENVS_PACKAGES_H_
