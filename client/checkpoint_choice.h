// Which of a run's checkpoints is meant. Pure.
#ifndef GPUCTL_CLIENT_CHECKPOINT_CHOICE_H_
#define GPUCTL_CLIENT_CHECKPOINT_CHOICE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/plot.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// `which`: "latest", "best" (the lowest evaluation loss at or last before a checkpoint's step) or a
// step. `checkpoints` oldest first. NOT_FOUND lists the steps there are; INVALID_ARGUMENT for
// another word.
absl::StatusOr<gpuctl::v1::CheckpointInfo> ChooseCheckpoint(
    const std::vector<gpuctl::v1::CheckpointInfo>& checkpoints, const std::string& which,
    const std::vector<PlotPoint>& eval_losses);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_CHECKPOINT_CHOICE_H_
