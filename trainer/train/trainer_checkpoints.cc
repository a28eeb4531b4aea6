// The parts of Trainer that save checkpoints and resume from them.
#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/train/resume.h"
#include "trainer/train/trainer.h"

namespace gpuctl::trainer {

Snapshot Trainer::TakeSnapshot() const {
  Snapshot snapshot;
  snapshot.step = progress_.step;
  snapshot.model_config = ModelToHuggingFace(config_.model);
  snapshot.model_config["torch_dtype"] = placement_.dtype == at::kFloat ? "float32" : "bfloat16";
  snapshot.state = StateToJson(config_, placement_, corpus_, progress_);
  const auto copy = [](const NamedTensors& live) {
    NamedTensors copied;
    for (const auto& [name, tensor] : live) {
      copied.emplace_back(
          name, tensor.to(at::kCPU, tensor.scalar_type(), false, /*copy=*/true).contiguous());
    }
    return copied;
  };
  snapshot.weights = copy(stepper_.Weights());
  snapshot.optimizer = copy(stepper_.OptimizerState());
  return snapshot;
}

void Trainer::Resume() {
  const std::string& root = config_.checkpoint.dir;
  if (!root.empty()) RemoveLeftovers(root);
  if (options_.resume.empty()) return RefuseToOverwrite();
  std::string path = options_.resume;
  if (path == "auto") {
    if (root.empty()) {
      throw ConfigError("resume auto: no checkpoint directory", "give --checkpoint-dir DIR");
    }
    std::vector<std::string> skipped;
    path = FindNewestCheckpoint(root, &skipped);
    for (const std::string& reason : skipped) reporter_.Warn("warning: passed over: " + reason);
    if (path.empty()) return reporter_.Say("resume  nothing to resume from in " + root);
  }
  Restore(LoadCheckpoint(path));
}

// Throws when a run that starts at step 0 would mix its checkpoints with another run's.
void Trainer::RefuseToOverwrite() const {
  if (config_.checkpoint.dir.empty()) return;
  std::vector<std::string> skipped;
  const std::string newest = FindNewestCheckpoint(config_.checkpoint.dir, &skipped);
  if (newest.empty()) return;
  throw ConfigError("start in " + config_.checkpoint.dir + ": it already holds " + newest,
                    "go on from it with --resume auto, or choose another --checkpoint-dir");
}

void Trainer::Restore(const LoadedCheckpoint& checkpoint) {
  for (const std::string& note :
       CheckResumable(checkpoint.state, config_, placement_, corpus_, checkpoint.path)) {
    reporter_.Warn("warning: not bit for bit: " + note);
  }
  stepper_.Load(checkpoint.weights, checkpoint.optimizer, checkpoint.path);
  progress_ = ProgressFromJson(checkpoint.state, checkpoint.path);
  saved_step_ = checkpoint.path == config_.checkpoint.dir + "/" + CheckpointName(checkpoint.step)
                    ? checkpoint.step
                    : -1;
  if (saved_step_ >= 0) last_checkpoint_ = checkpoint.path;
  reporter_.Say(Format("resume  from %s at step %lld", checkpoint.path.c_str(),
                       static_cast<long long>(progress_.step)));
}

}  // namespace gpuctl::trainer
