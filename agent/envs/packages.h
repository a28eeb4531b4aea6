// The Python packages of an environment, read from its directories; no Python is started.
#ifndef GPUCTL_AGENT_ENVS_PACKAGES_H_
#define GPUCTL_AGENT_ENVS_PACKAGES_H_

#include <string>
#include <vector>

namespace gpuctl {

// Returns "NAME==VERSION" for each distribution (*.dist-info, *.egg-info) in these site-packages,
// sorted by name; of two with one name the first directory's. At most 5,000.
std::vector<std::string> PackagesIn(const std::vector<std::string>& site_packages);

// Returns the site-packages (or dist-packages) of the Python environment at `prefix`.
std::vector<std::string> SitePackagesOf(const std::string& prefix);

// Returns the version of the environment's Python, as exact as its files say: "3.11.7" or "3.11";
// "" when it has none.
std::string PythonVersionOf(const std::string& prefix);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_ENVS_PACKAGES_H_
