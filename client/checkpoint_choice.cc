#include "client/checkpoint_choice.h"

#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/exit_codes.h"
#include "client/suggest.h"

namespace gpuctl {
namespace {

using gpuctl::v1::CheckpointInfo;

absl::StatusOr<CheckpointInfo> Best(const std::vector<CheckpointInfo>& checkpoints,
                                    const std::vector<PlotPoint>& eval_losses) {
  const CheckpointInfo* best = nullptr;
  double best_loss = 0;
  for (const CheckpointInfo& checkpoint : checkpoints) {
    std::optional<double> loss;
    for (const PlotPoint& point : eval_losses) {
      if (point.x <= static_cast<double>(checkpoint.step())) loss = point.y;
    }
    if (!loss.has_value() || (best != nullptr && *loss >= best_loss)) continue;
    best = &checkpoint;
    best_loss = *loss;
  }
  if (best != nullptr) return *best;
  return WithHint(absl::NotFoundError("choose the best checkpoint: the run has recorded no "
                                      "evaluation before any of them"),
                  "use --checkpoint latest, or a step");
}

std::string StepsOf(const std::vector<CheckpointInfo>& checkpoints) {
  std::vector<int64_t> steps;
  for (const CheckpointInfo& checkpoint : checkpoints) steps.push_back(checkpoint.step());
  return absl::StrJoin(steps, ", ");
}

}  // namespace

absl::StatusOr<CheckpointInfo> ChooseCheckpoint(const std::vector<CheckpointInfo>& checkpoints,
                                                const std::string& which,
                                                const std::vector<PlotPoint>& eval_losses) {
  int64_t step = 0;
  const bool is_step = absl::SimpleAtoi(which, &step);
  if (!is_step && which != "latest" && which != "best") {
    return UsageError(
        absl::StrCat("no checkpoint \"", which, "\"", DidYouMean(which, {"latest", "best"})),
        "use --checkpoint latest, best, or a step");
  }
  if (checkpoints.empty()) {
    return WithHint(absl::NotFoundError("the run has no complete checkpoint yet"),
                    "name files instead: gpuctl pull RUN 'outputs/**'");
  }
  if (which == "latest") return checkpoints.back();
  if (which == "best") return Best(checkpoints, eval_losses);
  for (const CheckpointInfo& checkpoint : checkpoints) {
    if (checkpoint.step() == step) return checkpoint;
  }
  return WithHint(absl::NotFoundError(absl::StrCat("no checkpoint of step ", step)),
                  absl::StrCat("there are steps ", StepsOf(checkpoints)));
}

}  // namespace gpuctl
