// Tries a run before it costs anything: whether it works, on a small part of it, and how much
// memory and time the whole needs, here and on a GPU.

#ifndef TRAINER_PREFLIGHT_PREFLIGHT_H_
#define TRAINER_PREFLIGHT_PREFLIGHT_H_

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/config/gpus.h"
#include "trainer/step/memory.h"

namespace gpuctl::trainer {

// What the run needs on a GPU in bf16.
struct GpuPlan {
  Gpu gpu;
  bool fits = false;
  std::string advice;  // what would fit, if this does not
  int64_t micro_batch = 0;
  int64_t accumulation = 0;  // micro-batches of a step
  int64_t bytes = 0;
  double seconds = 0;     // of all steps, at kAssumedMfu
  int64_t processes = 1;  // one on each of so many GPUs; the numbers are those of one of them
};

// The share of a GPU's rate that is assumed; not measured with this trainer.
constexpr double kAssumedMfu = 0.3;

// With `processes` above 1 they share each batch; what they say to each other costs no time here.
GpuPlan PlanForGpu(const Config& config, const Gpu& gpu, int64_t steps, int64_t processes = 1);

struct PreflightRequest {
  Config config;
  std::string scratch;  // an empty directory; a checkpoint is written there
  // The first of these that fits is planned for; none: the smallest of all known ones that fits.
  std::vector<Gpu> gpus;
  nlohmann::ordered_json* report = nullptr;  // gets the same, for programs; see docs/json.md
  // Gets each line of the report as it is known.
  std::function<void(const std::string& line)> say = [](const std::string&) {};
  std::function<int()> stop_signal = [] { return 0; };
  int64_t processes = 1;  // that share each batch later, each on a GPU of its own

  void Note(const char* key, nlohmann::ordered_json value) const {
    if (report != nullptr) (*report)[key] = std::move(value);
  }
};

// Checks that the model loads, that the batches are valid, that the loss is finite and falls, that
// a checkpoint saves and loads to the same bits, and that tokens are generated. A model that is
// large is cut to its first blocks for that. Returns the signal that stopped it, or 0. Throws Error
// for a run that would fail.
int Preflight(const PreflightRequest& request);

}  // namespace gpuctl::trainer

#endif  // TRAINER_PREFLIGHT_PREFLIGHT_H_
