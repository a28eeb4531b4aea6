// Which trainer a run gets: compiled on the node against the torch there, sent with its libraries
// (the kit), or the program beside gpuctl. The run file's trainer.build chooses; by itself it is
// the first that works, in this order.
#ifndef GPUCTL_CLIENT_TRAINER_TRAINER_CHOICE_H_
#define GPUCTL_CLIENT_TRAINER_TRAINER_CHOICE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/base/paths.h"
#include "client/link/link.h"
#include "client/programs/node_platform.h"
#include "client/runs/context.h"
#include "client/spec/job_spec.h"
#include "client/spec/run_spec.h"
#include "client/trainer/torch_check.h"
#include "client/trainer/trainer_kit.h"
#include "client/workdir/data_trees.h"

namespace gpuctl {

// The ways that this laptop has for a run, found before anything is rented.
struct TrainerWays {
  std::string program;            // for a run on this machine: the trainer beside gpuctl, or ""
  std::string sources;            // the directory of the sources to send, or ""
  std::optional<TrainerKit> kit;  // for another machine
  std::optional<NodePlatform> kit_platform;
  absl::Status no_kit;  // why there is none

  // True when some node could compile the trainer, whatever its processor.
  bool may_build() const { return !sources.empty(); }
};

// Finds the ways of the run `spec`; `local`: it runs on this machine. FAILED_PRECONDITION with a
// hint when there is none, or not the one that trainer.build names. INVALID_ARGUMENT when more
// GPUs are asked for than the trainer's processes would use.
absl::StatusOr<TrainerWays> FindTrainerWays(const RunSpec& spec, bool local,
                                            const BundlePaths& paths);

// Returns how the job is started when nothing is known of its node yet.
TrainerStart FirstStart(const TrainerWays& ways);

// Returns "compiled there for its torch, else the kit /…: 499 MB, …; sent once for a machine".
std::string DescribeTrainerWays(const TrainerWays& ways);

// What a launch knows of its node.
struct TrainerNode {
  std::string name;
  bool local = false;
  int gpus = 0;
  std::optional<NodePlatform> platform;
};

// The trainer of one launch.
struct ChosenTrainer {
  TrainerStart start;
  std::optional<DataTree> tree;  // what is sent
  std::string announce;          // said when it is sent
};

// Chooses, and asks the node when that decides. Scans what is sent. Says what is special about it.
// FAILED_PRECONDITION names what is missing and has a hint with the ways out; an error of the link
// otherwise.
absl::StatusOr<ChosenTrainer> ChooseTrainer(CommandContext& context, LinkFactory& links,
                                            const RunSpec& spec, const TrainerWays& ways,
                                            const TrainerNode& node);

// The decision alone. `answer` is the node's, or why it gave none; it does not matter without
// sources. Returns the way, and in `why_kit` why the node's own torch is not used.
absl::StatusOr<TrainerStart::Way> DecideTrainer(const RunSpec& spec, const TrainerWays& ways,
                                                const TrainerNode& node,
                                                const absl::StatusOr<TorchAnswer>& answer,
                                                std::string& why_kit);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TRAINER_TRAINER_CHOICE_H_
