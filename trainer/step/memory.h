// How much memory a run needs, before anything is allocated.

#ifndef TRAINER_STEP_MEMORY_H_
#define TRAINER_STEP_MEMORY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/config/config.h"
#include "trainer/step/device.h"

namespace gpuctl::trainer {

// Bytes on the device, except for the snapshot, which is on the CPU.
struct MemoryEstimate {
  int64_t weights = 0;      // with fp32 masters
  int64_t moments = 0;      // of AdamW
  int64_t gradients = 0;    // of all workers
  int64_t activations = 0;  // what all workers keep for their backward passes, and its tensors
  int64_t snapshot = 0;     // a copy of what a checkpoint saves
  int64_t batch = 0;        // its tokens, on the CPU
  int64_t base = 0;         // the program and LibTorch, on the CPU

  // At the time of the highest need on the device; on the CPU with the snapshot.
  int64_t total = 0;
};

// Estimates for micro-batches of `micro_batch` windows. `checkpoints` tells whether any are
// written; `base` is what the program has already. It counts the tensors that the functions of
// trainer/model keep; the tests compare it with runs.
MemoryEstimate EstimateMemory(const Config& config, const Placement& placement, int64_t micro_batch,
                              bool checkpoints, int64_t base);

// Returns the bytes that this process can still have: of the machine and its control groups, or of
// the CUDA device. Nothing when the system does not tell.
std::optional<int64_t> AvailableMemory(const Placement& placement);

// Returns the bytes in use: of the CUDA device, by all processes (LibTorch keeps what it has freed,
// so this is nearly its peak), or else the resident memory of this process.
int64_t UsedMemory(const Placement& placement);

// How a run uses the memory that there is.
struct MemoryPlan {
  Placement placement;  // perhaps with fewer workers, and more threads in each
  int64_t micro_batch = 0;
  MemoryEstimate estimate;
  std::optional<int64_t> available;
  bool copies_checkpoints = true;  // false: training waits while one is written
};

// Chooses what the configuration leaves open: the micro-batch (train.micro_batch 0), and the
// workers among which its threads are divided. Where nothing else helps, checkpoints are written
// without a copy. Throws Error(kBadConfig) for a run that does not fit, with a setting that does.
MemoryPlan PlanMemory(const Config& config, const Placement& placement,
                      std::optional<int64_t> available, int64_t base);

std::string Describe(const MemoryPlan& plan);

}  // namespace gpuctl::trainer

#endif  // TRAINER_STEP_MEMORY_H_
