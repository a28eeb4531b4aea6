#include "trainer/train/schedule.h"

#include <algorithm>
#include <cmath>

namespace gpuctl::trainer {

double LearningRate(const OptimizerConfig& config, int64_t step, int64_t steps) {
  if (step < config.warmup_steps) {
    return config.lr * static_cast<double>(step + 1) / static_cast<double>(config.warmup_steps);
  }
  if (config.schedule == "constant") return config.lr;
  const auto after = static_cast<double>(std::max<int64_t>(1, steps - config.warmup_steps));
  const double progress = std::min(1.0, static_cast<double>(step - config.warmup_steps) / after);
  const double shape = config.schedule == "linear"
                           ? 1.0 - progress
                           : 0.5 * (1.0 + std::cos(3.141592653589793 * progress));
  return config.lr * (config.min_lr_ratio + (1.0 - config.min_lr_ratio) * shape);
}

std::string WarmupProblem(const OptimizerConfig& config, int64_t steps) {
  if (config.warmup_steps < steps || steps <= 1) return "";
  return "the learning rate rises for " + std::to_string(config.warmup_steps) +
         " steps, and the run has " + std::to_string(steps) +
         ": optimizer.warmup_ratio=0.1 makes it a tenth of them";
}

}  // namespace gpuctl::trainer
