// Chooses one of a run's checkpoints. Pure.
#ifndef GPUCTL_CLIENT_RESULTS_CHECKPOINT_CHOICE_H_
#define GPUCTL_CLIENT_RESULTS_CHECKPOINT_CHOICE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/metrics/plot.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// Returns a checkpoint's name at home, by which users can also choose it. DATA_LOSS when the node
// gave it a name that leads elsewhere.
absl::StatusOr<std::string> HomeName(const gpuctl::v1::CheckpointInfo& checkpoint);

// Returns the checkpoint `which`: "latest", "best" (the lowest evaluation loss at or last before a
// checkpoint's step), a name or a step. `checkpoints` are sorted, oldest first. NOT_FOUND lists the
// existing ones.
absl::StatusOr<gpuctl::v1::CheckpointInfo> ChooseCheckpoint(
    const std::vector<gpuctl::v1::CheckpointInfo>& checkpoints, const std::string& which,
    const std::vector<PlotPoint>& eval_losses);

// Returns the value of the last of `points` that is not behind the checkpoint's step; nothing where
// there is none, or the checkpoint has no step.
std::optional<double> ValueAt(const gpuctl::v1::CheckpointInfo& checkpoint,
                              const std::vector<PlotPoint>& points);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RESULTS_CHECKPOINT_CHOICE_H_
