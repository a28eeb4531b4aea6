// The shell lines by which a command runs inside an allocation of Slurm.
#ifndef GPUCTL_CLIENT_BASE_ALLOCATION_STEP_H_
#define GPUCTL_CLIENT_BASE_ALLOCATION_STEP_H_

#include <string>

#include "absl/strings/string_view.h"
#include "client/base/node_target.h"

namespace gpuctl {

// Stands for the root directory that the allocation's holder chose and wrote down on its node: see
// InStep. As NodeTarget::root.
inline constexpr char kHeldRoot[] = "@held";
// The variable that has it in a step.
inline constexpr char kHeldRootVariable[] = "GPUCTL_HELD_ROOT";
// The exit code of a step in an allocation whose holder has written down no root, because it has
// not begun or is over.
inline constexpr int kNotHeldExit = 75;

// True for the number of a job of Slurm, or of a task of an array: "17_3".
bool IsAllocation(absl::string_view job);

// Returns the line that the login node's shell runs so that node `node` of the allocation `job`
// runs `command`, a line for its shell; without an allocation, the command itself. Bytes pass
// unchanged in both directions: without -u, what has no end of line would wait in srun.
std::string InStep(absl::string_view job, int node, absl::string_view command);

// Returns the arguments by which the agent does on this target what `arguments` ("bridge", "send",
// "receive") ask for: another command where the target is a directory on a login node.
std::string AgentArguments(const NodeTarget& target, absl::string_view arguments);

// Returns the name under which this laptop notes which programs the target has.
std::string NameForPrograms(const NodeTarget& target);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_ALLOCATION_STEP_H_
