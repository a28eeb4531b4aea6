#include "client/results/checkpoint_choice.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/base/shell_quote.h"
#include "client/base/suggest.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"

namespace gpuctl {
namespace {

using gpuctl::v1::CheckpointInfo;

absl::StatusOr<CheckpointInfo> Best(const std::vector<CheckpointInfo>& checkpoints,
                                    const std::vector<PlotPoint>& eval_losses) {
  const CheckpointInfo* best = nullptr;
  double best_loss = 0;
  for (const CheckpointInfo& checkpoint : checkpoints) {
    const std::optional<double> loss = ValueAt(checkpoint, eval_losses);
    if (!loss.has_value() || (best != nullptr && *loss >= best_loss)) continue;
    best = &checkpoint;
    best_loss = *loss;
  }
  if (best != nullptr) return *best;
  return WithHint(
      absl::NotFoundError("choose the best checkpoint: the run has recorded no "
                          "evaluation before any of them"),
      "use --metric NAME for another number of the job, --checkpoint latest, or a step");
}

bool HasName(const CheckpointInfo& checkpoint, const std::string& name) {
  return checkpoint.name() == name || BaseName(checkpoint.path()) == name;
}

// Returns the newest that matches, or null.
const CheckpointInfo* Find(const std::vector<CheckpointInfo>& checkpoints,
                           const std::string& which) {
  int64_t step = 0;
  const bool is_step = absl::SimpleAtoi(which, &step) && step >= 0;
  for (auto checkpoint = checkpoints.rbegin(); checkpoint != checkpoints.rend(); ++checkpoint) {
    if (HasName(*checkpoint, which)) return &*checkpoint;
  }
  for (auto checkpoint = checkpoints.rbegin(); checkpoint != checkpoints.rend(); ++checkpoint) {
    if (is_step && checkpoint->step() == step) return &*checkpoint;
  }
  return nullptr;
}

std::string WhatThereIs(const std::vector<CheckpointInfo>& checkpoints) {
  std::vector<std::string> steps;
  std::vector<std::string> names;  // names that can be typed unquoted
  int others = 0;
  for (const CheckpointInfo& checkpoint : checkpoints) {
    if (checkpoint.kind() == CheckpointInfo::KIND_TRAINER) {
      steps.push_back(absl::StrCat(checkpoint.step()));
    } else if (IsPlainWord(checkpoint.name())) {
      names.push_back(checkpoint.name());
    } else {
      ++others;
    }
  }
  std::vector<std::string> parts;
  if (!steps.empty()) parts.push_back(absl::StrCat("steps ", absl::StrJoin(steps, ", ")));
  if (!names.empty()) parts.push_back(absl::StrJoin(names, ", "));
  if (others > 0) parts.push_back(absl::StrCat(others, " with unusual names"));
  return absl::StrCat("there are ", absl::StrJoin(parts, ", and "));
}

}  // namespace

absl::StatusOr<std::string> HomeName(const CheckpointInfo& checkpoint) {
  const std::string name =
      checkpoint.name().empty() ? BaseName(checkpoint.path()) : checkpoint.name();
  if (!IsSafeRelativePath(checkpoint.path()) || !IsSafeRelativePath(name)) {
    return absl::DataLossError(absl::StrCat("the node named a checkpoint ", checkpoint.path()));
  }
  return name;
}

std::optional<double> ValueAt(const CheckpointInfo& checkpoint,
                              const std::vector<PlotPoint>& points) {
  std::optional<double> value;
  if (checkpoint.step() < 0) return value;
  for (const PlotPoint& point : points) {
    if (point.x <= static_cast<double>(checkpoint.step())) value = point.y;
  }
  return value;
}

absl::StatusOr<CheckpointInfo> ChooseCheckpoint(const std::vector<CheckpointInfo>& checkpoints,
                                                const std::string& which,
                                                const std::vector<PlotPoint>& eval_losses) {
  if (checkpoints.empty()) {
    return WithHint(absl::NotFoundError("the run has no complete checkpoint yet"),
                    "name files instead: gpuctl pull RUN 'outputs/**'");
  }
  if (which == "latest") return checkpoints.back();
  if (which == "best") return Best(checkpoints, eval_losses);
  if (const CheckpointInfo* found = Find(checkpoints, which); found != nullptr) return *found;
  int64_t step = 0;
  if (absl::SimpleAtoi(which, &step)) {
    return WithHint(absl::NotFoundError(absl::StrCat("no checkpoint of step ", step)),
                    WhatThereIs(checkpoints));
  }
  return WithHint(absl::NotFoundError(absl::StrCat("no checkpoint \"", which, "\"",
                                                   DidYouMean(which, {"latest", "best"}))),
                  WhatThereIs(checkpoints));
}

}  // namespace gpuctl
