// The learning rate as a function of the step.

#ifndef TRAINER_TRAIN_SCHEDULE_H_
#define TRAINER_TRAIN_SCHEDULE_H_

#include <cstdint>
#include <string>

#include "trainer/config/config.h"

namespace gpuctl::trainer {

// Returns the rate for the step numbered `step` (the first is 0) of `steps`. Warm-up: lr (step + 1)
// / warmup_steps. Then it falls from lr to lr * min_lr_ratio, which it would reach one step after
// the last; constant stays at lr.
double LearningRate(const OptimizerConfig& config, int64_t step, int64_t steps);

// Returns a sentence about a warm-up that is not over before the last step; "" about others.
std::string WarmupProblem(const OptimizerConfig& config, int64_t steps);

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_SCHEDULE_H_
