// Where nvidia-smi is.
#ifndef GPUCTL_AGENT_BASE_NVIDIA_SMI_H_
#define GPUCTL_AGENT_BASE_NVIDIA_SMI_H_

#include <string>

namespace gpuctl {

// Returns $GPUCTL_NVIDIA_SMI, else the path of nvidia-smi in our own PATH or in its usual places;
// "" where there is none.
std::string FindNvidiaSmi();

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_NVIDIA_SMI_H_
