#include "client/launch/push_plan.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/base/quantity.h"
#include "client/node/shared_store.h"
#include "client/trainer/trainer_choice.h"
#include "client/transfer/tree_transfer.h"
#include "client/workdir/data_trees.h"
#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
#include "common/transfer/push.h"
#include "provisioning/markets.h"

namespace gpuctl {

namespace {

// Sends trees to one machine.
class Sender {
 public:
  Sender(CommandContext& context, LinkFactory& links, const NodeTarget& machine, bool others_follow)
      : context_(context), links_(links), machine_(machine), others_follow_(others_follow) {}

  absl::Status Send(const std::string& root, const Manifest& manifest, const PushTarget& target,
                    const TransferStyle& style) {
    if (machine_.provider == kClusterProvider && manifest.content_bytes() >= kLargeBytes) {
      if (!looked_) store_ = SharedStore::Find(context_, machine_, links_);
      looked_ = true;
      if (store_ != nullptr) {
        absl::Status sent = Push(context_, store_->links(), root, manifest, target, style).status();
        if (sent.ok()) sent = store_->Give(manifest.Digest(), /*keep=*/others_follow_);
        if (sent.ok()) return sent;
        // A file that changed has changed for any way.
        if (FaultOf(sent) == LinkFault::kFileChanged) return sent;
        context_.Say(absl::StrCat("not by the login node's file system: ", sent.message()));
        store_ = nullptr;
      }
    }
    return Push(context_, links_, root, manifest, target, style).status();
  }

 private:
  CommandContext& context_;
  LinkFactory& links_;
  const NodeTarget& machine_;
  const bool others_follow_;
  bool looked_ = false;
  std::unique_ptr<SharedStore> store_;
};

}  // namespace

PlanContent ContentOf(const LaunchPlan& plan, const ChosenTrainer* trainer) {
  PlanContent content;
  const auto add = [&content](const Manifest& manifest) {
    content.trees.push_back(manifest.Digest());
    content.bytes += manifest.content_bytes();
  };
  if (trainer != nullptr && trainer->tree.has_value()) add(trainer->tree->manifest);
  for (const DataTree& tree : plan.data) add(tree.manifest);
  if (plan.workdir.has_value()) add(plan.workdir->manifest);
  return content;
}

absl::Status PushPlan(CommandContext& context, LinkFactory& links, const NodeTarget& machine,
                      const LaunchPlan& plan, const LaunchFlags& flags,
                      const ChosenTrainer* trainer, const PushObserver& observe,
                      bool others_follow) {
  Sender sender(context, links, machine, others_follow);
  TransferStyle style;
  style.streams = flags.streams;
  if (observe != nullptr) {
    style.quiet = true;
    style.observe = [&](const TransferCount& count) { observe(style.what, count); };
  }
  PushTarget target;
  if (trainer != nullptr && trainer->tree.has_value()) {
    const DataTree& tree = *trainer->tree;
    style.what = "the trainer";
    if (observe == nullptr) style.announce = trainer->announce;
    target.likely_there = true;
    target.sources = tree.sources;
    RETURN_IF_ERROR(
        Annotate(sender.Send(tree.source, tree.manifest, target, style), "send the trainer"));
    style.announce.clear();
    target.sources.clear();
  }
  for (const DataTree& tree : plan.data) {
    style.what = tree.path;
    target.likely_there = true;
    target.sources = tree.sources;
    RETURN_IF_ERROR(Annotate(sender.Send(tree.source, tree.manifest, target, style),
                             absl::StrCat("send the data ", tree.place())));
  }
  target.sources.clear();
  if (!plan.workdir.has_value()) return absl::OkStatus();
  style.what = "sending";
  target.likely_there = !plan.data.empty();
  return Annotate(sender.Send(plan.workdir->path, plan.workdir->manifest, target, style),
                  "send the work directory");
}

}  // namespace gpuctl
