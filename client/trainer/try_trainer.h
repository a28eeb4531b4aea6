// Calls of the trainer's code, which reports errors by exception.
#ifndef GPUCTL_CLIENT_TRAINER_TRY_TRAINER_H_
#define GPUCTL_CLIENT_TRAINER_TRY_TRAINER_H_

#include <functional>

#include "absl/status/status.h"

namespace gpuctl {

// Calls `work`, and returns what it throws as a status with the trainer's own words and hint:
// INVALID_ARGUMENT (usage) for wrong settings, FAILED_PRECONDITION for data that cannot be used or
// a file system that fails.
absl::Status TryTrainer(const std::function<void()>& work);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TRAINER_TRY_TRAINER_H_
