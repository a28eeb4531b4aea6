// Calls of the trainer's code, which reports errors by exception.
#ifndef GPUCTL_CLIENT_TRAINER_TRY_TRAINER_H_
#define GPUCTL_CLIENT_TRAINER_TRY_TRAINER_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/process/signal_pipe.h"

namespace gpuctl {

// Calls `work`, and returns what it throws as a status with the trainer's own words and hint:
// INVALID_ARGUMENT (usage) for wrong settings, FAILED_PRECONDITION for data that cannot be used or
// a file system that fails.
absl::Status TryTrainer(const std::function<void()>& work);

// Runs work of the trainer's code that takes long and writes something. It gets a function to call
// between its pieces, which throws after SIGINT, SIGTERM or SIGHUP; then CANCELLED comes, with the
// exit code of an interruption. Call it while there are no other threads.
absl::Status TryLongWork(absl::string_view verb,
                         const std::function<void(const std::function<void()>& check)>& work);

// True when one of the signals has come.
bool SignalCame(const SignalPipe& signals);
// Returns CANCELLED with the exit code of an interruption by one of the signals that were caught.
absl::Status InterruptedBy(const std::vector<int>& caught, absl::string_view message);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TRAINER_TRY_TRAINER_H_
