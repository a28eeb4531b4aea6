// Parses the GPUs that a run requests.
#ifndef GPUCTL_CLIENT_SPEC_GPU_NAMES_H_
#define GPUCTL_CLIENT_SPEC_GPU_NAMES_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "provisioning/market/gpu_models.h"

namespace gpuctl {

// A run's request: a model, or any GPU whose memory lies in a range; and how many of them.
struct GpuRequirement {
  std::string name;              // canonical; empty when only memory matters
  int64_t min_memory_bytes = 0;  // with an empty name
  int64_t max_memory_bytes = 0;  // 0: no upper end
  int count = 1;
  std::string text;  // as written, for messages
};

// Parses "H100", "h100:2", "A100-80GB:1", "24GB", "24GB..80GB:2". INVALID_ARGUMENT names the
// nearest valid name.
absl::StatusOr<GpuRequirement> ParseGpuRequirement(absl::string_view text);

// True when a GPU of that canonical name and memory satisfies the request.
bool GpuSatisfies(const GpuRequirement& requirement, absl::string_view canonical_name,
                  int64_t memory_bytes);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SPEC_GPU_NAMES_H_
