// The learning rate as a function of the step.

#ifndef TRAINER_TRAIN_SCHEDULE_H_
#define TRAINER_TRAIN_SCHEDULE_H_

#include <cstdint>

#include "trainer/config/config.h"

namespace gpuctl::trainer {

// For the step numbered `step` (the first is 0) of `steps`. Warm-up: lr (step + 1) / warmup_steps.
// Then from lr down to lr * min_lr_ratio, which the last step would reach one step later; constant
// stays at lr.
double LearningRate(const OptimizerConfig& config, int64_t step, int64_t steps);

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_SCHEDULE_H_
