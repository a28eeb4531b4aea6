#include "trainer/train/run_plan.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "trainer/base/sha256.h"
#include "trainer/step/device.h"

namespace gpuctl::trainer {
namespace {

// What reading a checkpoint leaves behind in the program, free for the run. Without it a run could
// not go on where it has just begun.
constexpr int64_t kReadersBytes = 32 << 20;

}  // namespace

Config WithModel(Config config, const ModelSource& source) {
  config.model = source.model;
  config.lora = source.lora;
  return config;
}

Config InSteps(Config config, const TrainingData& data) {
  TrainConfig& train = config.train;
  train.pairs = data.pairs();
  if (train.epochs > 0) {
    const double examples = train.epochs * static_cast<double>(data.windows_per_epoch()) /
                            static_cast<double>(train.windows_per_example());
    train.steps = std::max<int64_t>(
        1, static_cast<int64_t>(std::ceil(examples / static_cast<double>(train.batch))));
  }
  OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.warmup_ratio > 0) {
    optimizer.warmup_steps = static_cast<int64_t>(
        std::lround(optimizer.warmup_ratio * static_cast<double>(train.steps)));
  }
  return config;
}

std::string TokenizerDigest(const std::vector<KeptFile>& files) {
  for (const KeptFile& file : files) {
    if (file.name == "tokenizer.json") return Sha256Hex(*file.bytes);
  }
  return "";
}

MemoryPlan PlanRun(const Config& config, int64_t held, int64_t held_on_machine) {
  const Placement placement = ChoosePlacement(config.train);
  std::optional<int64_t> available = AvailableMemory(placement);
  // The processes of a machine share its memory, and plan at about the same time.
  if (available && placement.device.is_cpu()) {
    *available = (*available + held_on_machine) / config.train.local_processes;
  }
  if (available && placement.device.is_cpu() && held > 0) *available += kReadersBytes;
  return PlanMemory(config, placement, available, std::max<int64_t>(0, ResidentBytes() - held));
}

}  // namespace gpuctl::trainer
