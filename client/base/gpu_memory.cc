#include "client/base/gpu_memory.h"

#include "absl/strings/str_format.h"

namespace gpuctl {

int64_t GpuGigabyte(int64_t total) {
  constexpr int64_t kGb = 1'000'000'000;
  return total % kGb == 0 ? kGb : int64_t{1} << 30;
}

std::string FormatGpuMemory(int64_t total) {
  return absl::StrFormat("%.1f GB",
                         static_cast<double>(total) / static_cast<double>(GpuGigabyte(total)));
}

}  // namespace gpuctl
