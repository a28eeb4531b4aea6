// Rows of text to what the built-in trainer reads, on this laptop.
#ifndef GPUCTL_CLIENT_TRAINER_PREPARE_DATA_H_
#define GPUCTL_CLIENT_TRAINER_PREPARE_DATA_H_

#include "absl/status/statusor.h"
#include "client/runs/context.h"
#include "trainer/prepare/prepare.h"

namespace gpuctl {

// Makes the folder `options.out`. Nothing is changed on errors. Lists bad rows on stderr.
// CANCELLED, with the exit code of an interruption, when SIGINT, SIGTERM or SIGHUP came; other
// errors as TryTrainer has them. Call it while there are no other threads.
absl::StatusOr<trainer::PrepareReport> PrepareData(const CommandContext& context,
                                                   trainer::PrepareOptions options);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TRAINER_PREPARE_DATA_H_
