// `gpuctl-agent self-check`: what the agent can know of processes on this system, by trying it.
#ifndef GPUCTL_AGENT_SELF_CHECK_H_
#define GPUCTL_AGENT_SELF_CHECK_H_

#include <string>

namespace gpuctl {

// Prints a line for each thing: "ok" or "FAIL", its name, what was found, and what to do about it,
// with tabs between them. `root` is where the node's root would be. Uses no root, and ends what it
// starts. Returns the exit code: 0, also when something does not hold.
int RunSelfCheck(const std::string& program, const std::string& root);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SELF_CHECK_H_
