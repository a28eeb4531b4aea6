// Canonical names of GPU models, from the names of users, drivers and providers.
#ifndef GPUCTL_PROVISIONING_MARKET_GPU_MODELS_H_
#define GPUCTL_PROVISIONING_MARKET_GPU_MODELS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// Returns all canonical names, e.g. "H100", "H100-SXM", "A100-80GB", "RTX-4090".
const std::vector<std::string>& CanonicalGpuNames();

// Returns the canonical name of a GPU that its driver ("NVIDIA A100-SXM4-80GB") or a provider
// ("A100 SXM4", "H100 (80 GB SXM5)", "gpu_1x_gh200") calls `name`; `name` itself for a model that
// is not ours. The memory of one GPU distinguishes models with the same name; 0: not known.
std::string CanonicalGpuName(absl::string_view name, int64_t memory_bytes);

// Returns the canonical name that a user means by "h100", "H100 SXM", "4090", "A100_80GB", "Tesla
// P100"; absent when there is none.
std::optional<std::string> FindGpuName(absl::string_view text);

// True when a GPU of the canonical name `name` is one of the model `asked`: the same, or one of its
// forms. "H100" asks for any of H100-SXM, H100-PCIe and H100-NVL.
bool GpuIsModel(absl::string_view name, absl::string_view asked);

// True when a GPU of that canonical name and memory satisfies the request, counts aside. A "24GB"
// card reports 24 GiB minus the firmware's part, so both ends of a range have a tolerance.
bool GpuSatisfies(const Requirements::Gpu& asked, absl::string_view name, int64_t memory_bytes);

// A GPU as a market offers it or as its driver names it; the name need not be a canonical one.
struct NamedGpu {
  std::string name;
  int64_t memory_bytes = 0;  // 0: not known
};
// True when a machine with the GPU `found` keeps the promise of `promised`. Canonical names must be
// of one model. Where neither name is known here, equal words decide, and then the memory: a market
// and a driver may name one card in two ways.
bool KeepsGpuPromise(const NamedGpu& promised, const NamedGpu& found);

// Returns the letters, in upper case, and digits of `text`, so that "RTX 4090" and "rtx_4090" are
// equal.
std::string SqueezeGpuName(absl::string_view text);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_MARKET_GPU_MODELS_H_
