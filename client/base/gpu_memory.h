// The memory of a GPU, as people call it.
#ifndef GPUCTL_CLIENT_BASE_GPU_MEMORY_H_
#define GPUCTL_CLIENT_BASE_GPU_MEMORY_H_

#include <cstdint>
#include <string>

namespace gpuctl {

// Returns the number of bytes that people call a GB in a GPU of `total` bytes: 2^30, because a
// "24 GB" card has 24 GiB. Markets that tell a number of GB alone are taken at their word.
int64_t GpuGigabyte(int64_t total);
// Returns "24.0 GB" or "22.5 GB".
std::string FormatGpuMemory(int64_t total);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_GPU_MEMORY_H_
