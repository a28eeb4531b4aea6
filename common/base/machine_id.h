#ifndef GPUCTL_COMMON_BASE_MACHINE_ID_H_
#define GPUCTL_COMMON_BASE_MACHINE_ID_H_

#include <string>

namespace gpuctl {

// Returns the operating system's lasting id of this computer: /etc/machine-id on Linux, the host's
// UUID on macOS. A copy of a disk may carry it along. Empty when there is none. It is not meant to
// leave the computer.
std::string MachineId();

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BASE_MACHINE_ID_H_
