#include "client/trainer/trainer_choice.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/job/job_layout.h"

namespace gpuctl {
namespace {

using Way = TrainerStart::Way;

constexpr int64_t kMaxScriptBytes = 1 << 20;

absl::Status Impossible(absl::string_view message, absl::string_view hint) {
  return WithExitCode(WithHint(absl::FailedPreconditionError(message), hint), kExitUsage);
}

absl::Status NoSources() {
  return Impossible("compile the trainer on the node: this gpuctl has no trainer-src folder",
                    "install gpuctl again, or use run: with a script");
}

// A process of the trainer uses one GPU; the others would bill and do nothing.
absl::Status CheckGpusAreUsed(const RunSpec& spec) {
  if (spec.processes == kOneForEachGpu) return absl::OkStatus();
  const int used = std::max(1, spec.processes);
  for (const GpuRequirement& gpu : spec.gpu) {
    if (gpu.count <= used) continue;
    const std::string uses = used == 1
                                 ? "it uses one GPU"
                                 : absl::StrCat("its ", used, " processes use ", used, " GPUs");
    return UsageError(absl::StrCat("trainer: ", uses, "; of ", gpu.text, " the other ",
                                   gpu.count - used, " would bill and do nothing"),
                      "processes: gpus trains on all of them; or ask for fewer");
  }
  return absl::OkStatus();
}

// Returns why the kit cannot train on `node`; OK when it can.
absl::Status CheckKit(const RunSpec& spec, const TrainerWays& ways, const TrainerNode& node) {
  if (!ways.kit.has_value()) return ways.no_kit;
  if (node.platform.has_value() && ways.kit_platform.has_value() &&
      *node.platform != *ways.kit_platform) {
    return Impossible(
        absl::StrCat("train on ", node.name, ": it is ", PlatformName(*node.platform),
                     ", and the trainer's kit is for ", PlatformName(*ways.kit_platform)),
        "use trainer.build: node, which compiles it there; or run: with a script");
  }
  if (node.gpus == 0) return absl::OkStatus();
  return CheckTrainerUsesGpus(*ways.kit, spec.trainer_json, node.name);
}

// Returns why `node` cannot compile a trainer for this run; "" when it can.
std::string WhyNotThere(const RunSpec& spec, const TrainerNode& node,
                        const absl::StatusOr<TorchAnswer>& answer) {
  if (!answer.ok()) return std::string(answer.status().message());
  if (!answer->can_build) return answer->text;
  const bool wants_gpus = node.gpus > 0 && TrainerDevice(spec.trainer_json) != "cpu";
  if (!wants_gpus || answer->has_cuda) return "";
  return absl::StrCat(answer->text, ": this torch has no CUDA and would leave its GPUs idle");
}

}  // namespace

absl::StatusOr<TrainerWays> FindTrainerWays(const RunSpec& spec, bool local,
                                            const BundlePaths& paths) {
  RETURN_IF_ERROR(CheckGpusAreUsed(spec));
  TrainerWays ways;
  if (spec.trainer_build != TrainerBuild::kKit) ways.sources = paths.trainer_sources;
  if (spec.trainer_build == TrainerBuild::kNode) {
    if (ways.sources.empty()) return NoSources();
    return ways;
  }
  if (local) {
    ways.program = paths.trainer;
    if (ways.program.empty() && ways.sources.empty()) {
      return Impossible("run the built-in trainer: no gpuctl-trainer beside gpuctl",
                        "build it with GPUCTL_BUILD_TRAINER=ON, or use run: with a script");
    }
    return ways;
  }
  absl::StatusOr<TrainerKit> kit = FindTrainerKit(paths);
  if (!kit.ok()) {
    if (ways.sources.empty()) return kit.status();
    ways.no_kit = kit.status();
    return ways;
  }
  const absl::StatusOr<NodePlatform> platform = PlatformOfProgramFile(
      paths.trainer_kit.empty() ? paths.trainer : JoinPath(paths.trainer_kit, "gpuctl-trainer"));
  if (platform.ok()) ways.kit_platform = *platform;
  ways.kit = *std::move(kit);
  return ways;
}

TrainerStart FirstStart(const TrainerWays& ways) {
  if (!ways.program.empty()) return {Way::kProgram, ways.program};
  if (!ways.sources.empty()) return {Way::kSources, ""};
  return {Way::kKit, ways.kit.has_value() ? ways.kit->loader : ""};
}

std::string DescribeTrainerWays(const TrainerWays& ways) {
  if (!ways.program.empty()) return ways.program;
  const std::string kit = ways.kit.has_value()
                              ? absl::StrCat(ways.kit->shown, ": ", DescribeTrainerKit(*ways.kit),
                                             "; sent once for a machine")
                              : "";
  if (ways.sources.empty()) return kit;
  return absl::StrCat("compiled there for its torch", kit.empty() ? "" : "; else ", kit);
}

absl::StatusOr<TrainerStart::Way> DecideTrainer(const RunSpec& spec, const TrainerWays& ways,
                                                const TrainerNode& node,
                                                const absl::StatusOr<TorchAnswer>& answer,
                                                std::string& why_kit) {
  if (!ways.may_build()) {
    RETURN_IF_ERROR(CheckKit(spec, ways, node));
    return Way::kKit;
  }
  why_kit = WhyNotThere(spec, node, answer);
  if (why_kit.empty()) return Way::kSources;
  const std::string fix = answer.ok() && !answer->fix.empty()
                              ? answer->fix
                              : "choose an image with PyTorch (with CUDA, for GPUs) and g++";
  if (spec.trainer_build == TrainerBuild::kNode) {
    return Impossible(
        absl::StrCat("compile the trainer on ", node.name, ": ", why_kit),
        absl::StrCat(fix, "; or use trainer.build: kit, which needs nothing of the machine"));
  }
  const absl::Status kit = CheckKit(spec, ways, node);
  if (kit.ok()) return Way::kKit;
  return Impossible(
      absl::StrCat("train on ", node.name, ": the trainer cannot be compiled there: ", why_kit,
                   ". Nor can it be sent: ", kit.message()),
      absl::StrCat(fix,
                   "; or make a kit that fits: gpuctl debug trainer-kit, on a machine "
                   "of its kind that has the trainer"));
}

absl::StatusOr<ChosenTrainer> ChooseTrainer(CommandContext& context, LinkFactory& links,
                                            const RunSpec& spec, const TrainerWays& ways,
                                            const TrainerNode& node) {
  ChosenTrainer chosen;
  if (!spec.gpus.has_value() && spec.processes == 0 && node.gpus > 1 &&
      TrainerDevice(spec.trainer_json) != "cpu") {
    context.Say(absl::StrCat(node.name, " has ", node.gpus,
                             " GPUs, and the trainer uses the first one; CUDA_VISIBLE_DEVICES in "
                             "env: names another, processes: gpus takes all"));
  }
  if (node.local && !ways.program.empty()) {
    chosen.start = FirstStart(ways);
    return chosen;
  }
  absl::StatusOr<TorchAnswer> answer = absl::FailedPreconditionError("nobody asked");
  if (ways.may_build()) {
    ASSIGN_OR_RETURN(const std::string script,
                     ReadFileToString(JoinPath(ways.sources, "build.sh"), kMaxScriptBytes));
    answer = AskForTorch(links, script, spec.env);
    // Only the node's own word counts as a no.
    if (!answer.ok() && !absl::IsFailedPrecondition(answer.status())) return answer.status();
  }
  std::string why_kit;
  ASSIGN_OR_RETURN(chosen.start.way, DecideTrainer(spec, ways, node, answer, why_kit));
  if (chosen.start.way == Way::kSources) {
    ASSIGN_OR_RETURN(chosen.tree, ScanDataTree(context, ways.sources, kTrainerKitPath));
    context.Say(absl::StrCat(node.name, " compiles the trainer, once: ", answer->text));
    return chosen;
  }
  if (!why_kit.empty()) {
    context.Say(absl::StrCat("the trainer is not compiled on ", node.name, ": ", why_kit));
  }
  chosen.start.path = ways.kit->loader;
  ASSIGN_OR_RETURN(chosen.tree, ScanTrainerKit(context, *ways.kit));
  chosen.announce = absl::StrCat("sending the trainer (", FormatBytes(ways.kit->bytes),
                                 "), once for this machine");
  return chosen;
}

}  // namespace gpuctl
