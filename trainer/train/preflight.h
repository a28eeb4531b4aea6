// Tries a run before it costs anything: whether it works, on a small part of it, and how much
// memory and time the whole needs, here and on a GPU.

#ifndef TRAINER_TRAIN_PREFLIGHT_H_
#define TRAINER_TRAIN_PREFLIGHT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/step/memory.h"

namespace gpuctl::trainer {

// A GPU that one can rent. Memory and bf16 rate (dense, without sparsity) as its maker's data sheet
// states them.
struct Gpu {
  std::string name;
  double memory_gb = 0;
  double tflops = 0;
};

// Sorted by memory.
const std::vector<Gpu>& KnownGpus();

// Returns the one whose name is `name` without regard to case, blanks and dashes. Throws
// Error(kBadConfig) that lists the names.
Gpu FindGpu(const std::string& name);

// What the run needs on a GPU in bf16.
struct GpuPlan {
  Gpu gpu;
  bool fits = false;
  std::string advice;  // what would fit, if this does not
  int64_t micro_batch = 0;
  int64_t accumulation = 0;  // micro-batches of a step
  int64_t bytes = 0;
  double seconds = 0;  // of all steps, at kAssumedMfu
};

// The share of a GPU's rate that is assumed; not measured with this trainer.
constexpr double kAssumedMfu = 0.3;

GpuPlan PlanForGpu(const Config& config, const Gpu& gpu, int64_t steps);

struct PreflightRequest {
  Config config;
  std::string scratch;  // an empty directory; a checkpoint is written there
  std::string gpu;      // the one to plan for; "" finds the smallest that fits
  // Gets each line of the report as it is known.
  std::function<void(const std::string& line)> say = [](const std::string&) {};
  std::function<int()> stop_signal = [] { return 0; };
};

// Checks that the model loads, that the batches are valid, that the loss is finite and falls, that
// a checkpoint saves and loads to the same bits, and that tokens are generated. A model that is
// large is cut to its first blocks for that. Returns the signal that stopped it, or 0. Throws Error
// for a run that would fail.
int Preflight(const PreflightRequest& request);

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_PREFLIGHT_H_
