// GPUs that one can rent, as preflight plans for them. Needs no LibTorch.

#ifndef TRAINER_CONFIG_GPUS_H_
#define TRAINER_CONFIG_GPUS_H_

#include <optional>
#include <string>
#include <vector>

namespace gpuctl::trainer {

// Memory and bf16 rate (dense, without sparsity) as its maker's data sheet states them.
struct Gpu {
  std::string name;
  double memory_gb = 0;
  double tflops = 0;
};

// Sorted by memory.
const std::vector<Gpu>& KnownGpus();

// Returns the one whose name is `name` without regard to case, blanks and dashes; nothing if there
// is none.
std::optional<Gpu> FindKnownGpu(const std::string& name);
// Does the same. Throws Error(kBadConfig) that lists the names.
Gpu FindGpu(const std::string& name);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CONFIG_GPUS_H_
