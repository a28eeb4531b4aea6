#include "client/launch/push_plan.h"

#include "absl/strings/str_cat.h"
#include "client/base/quantity.h"
#include "client/trainer/trainer_choice.h"
#include "client/transfer/tree_transfer.h"
#include "client/workdir/data_trees.h"
#include "common/base/status_macros.h"
#include "common/transfer/push.h"

namespace gpuctl {

absl::Status PushPlan(CommandContext& context, LinkFactory& links, const LaunchPlan& plan,
                      const LaunchFlags& flags, const ChosenTrainer* trainer) {
  TransferStyle style;
  style.streams = flags.streams;
  PushTarget target;
  if (trainer != nullptr && trainer->tree.has_value()) {
    const DataTree& tree = *trainer->tree;
    style.what = "the trainer";
    style.announce = trainer->announce;
    target.likely_there = true;
    target.sources = tree.sources;
    RETURN_IF_ERROR(
        Annotate(Push(context, links, tree.source, tree.manifest, target, style).status(),
                 "send the trainer"));
    style.announce.clear();
    target.sources.clear();
  }
  for (const DataTree& tree : plan.data) {
    style.what = tree.path;
    target.likely_there = true;
    target.sources = tree.sources;
    RETURN_IF_ERROR(
        Annotate(Push(context, links, tree.source, tree.manifest, target, style).status(),
                 absl::StrCat("send the data ", tree.place())));
  }
  target.sources.clear();
  if (!plan.workdir.has_value()) return absl::OkStatus();
  style.what = "sending";
  target.likely_there = !plan.data.empty();
  return Annotate(
      Push(context, links, plan.workdir->path, plan.workdir->manifest, target, style).status(),
      "send the work directory");
}

}  // namespace gpuctl
