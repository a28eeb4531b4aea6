// GPU models by one canonical name each, whatever a user, a driver or a provider calls them.
#ifndef GPUCTL_CLIENT_GPU_NAMES_H_
#define GPUCTL_CLIENT_GPU_NAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// All canonical names, e.g. "H100", "A100-80GB", "RTX-4090".
const std::vector<std::string>& CanonicalGpuNames();

// What a run asks for: a model, or any GPU whose memory lies in a range; and how many of them.
struct GpuRequirement {
  std::string name;              // canonical; empty when only memory matters
  int64_t min_memory_bytes = 0;  // with an empty name
  int64_t max_memory_bytes = 0;  // 0: no upper end
  int count = 1;
  std::string text;  // as written, for messages
};

// "H100", "h100:2", "A100-80GB:1", "24GB", "24GB..80GB:2". INVALID_ARGUMENT names the nearest right
// name.
absl::StatusOr<GpuRequirement> ParseGpuRequirement(absl::string_view text);

// The canonical name of a GPU as its driver reports it ("NVIDIA A100-SXM4-80GB", with its memory),
// or the driver's name when it is none of ours.
std::string CanonicalGpuName(absl::string_view driver_name, int64_t memory_bytes);

// True when a GPU of that canonical name and memory is what is asked for.
bool GpuSatisfies(const GpuRequirement& requirement, absl::string_view canonical_name,
                  int64_t memory_bytes);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_GPU_NAMES_H_
