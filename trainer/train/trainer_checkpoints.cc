// The parts of Trainer that save checkpoints and resume from them.
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/config/families.h"
#include "trainer/step/out_of_memory.h"
#include "trainer/train/resume.h"
#include "trainer/train/trainer.h"

namespace gpuctl::trainer {

// The tensors are the live ones.
Snapshot Trainer::LiveSnapshot() const {
  Snapshot snapshot;
  snapshot.step = progress_.step;
  snapshot.adapter = stepper_.layout().adapted();
  snapshot.model_config = source_.config;
  if (!snapshot.adapter) {
    SetHuggingFaceDtype(placement_.dtype == at::kFloat  ? "float32"
                        : placement_.dtype == at::kHalf ? "float16"
                                                        : "bfloat16",
                        &snapshot.model_config);
  }
  snapshot.files = source_.files;
  snapshot.state = StateToJson(config_, placement_, data_->digest(), progress_);
  if (base_digest_) snapshot.state["base_digest"] = base_digest_->Get();
  snapshot.weights = stepper_.Weights();
  snapshot.optimizer = OptimizerTensors();
  return snapshot;
}

NamedTensors Trainer::OptimizerTensors() const {
  NamedTensors named = stepper_.OptimizerState();
  references_.AppendTo(&named);
  return named;
}

void Trainer::SaveCheckpoint() {
  if (!writes() || saved_step_ == progress_.step) return;
  // Stopped before the first model had read its pairs: there is nothing to go on from yet.
  if (data_->pairs() && !references_.known()) return;
  stepper_.Gather();
  if (checkpointer_ && (!copies_checkpoints_ || !SaveCopy()))
    checkpointer_->SaveNow(LiveSnapshot());
  stepper_.DropGathered();
  saved_step_ = progress_.step;
}

// Takes the memory for copies from the system after the first step, which has taken all that
// training needs. The first checkpoint would wait for it.
void Trainer::MakeRoomForCopies() {
  if (made_room_ || !checkpointer_ || !copies_checkpoints_ || stepper_.divided()) return;
  made_room_ = true;
  TryToCopy([this] {
    Snapshot room = CopyTensorsInto({});
    if (room.arrived) room.arrived();
    checkpointer_->Keep(std::move(room));
  });
}

bool Trainer::SaveCopy() {
  return TryToCopy([this] {
    checkpointer_->Save([this](Snapshot written) {
      Snapshot snapshot = LiveSnapshot();
      Snapshot copies = CopyTensorsInto(std::move(written));
      snapshot.weights = std::move(copies.weights);
      snapshot.optimizer = std::move(copies.optimizer);
      snapshot.arrived = std::move(copies.arrived);
      return snapshot;
    });
  });
}

// Returns copies of the live tensors, in the memory of `written` where that fits, and no more.
Snapshot Trainer::CopyTensorsInto(Snapshot written) {
  Snapshot copies;
  copies.weights = stepper_.Copy(stepper_.Weights(), std::move(written.weights));
  copies.optimizer = stepper_.Copy(OptimizerTensors(), std::move(written.optimizer));
  copies.arrived = stepper_.CopiesArrived();
  return copies;
}

// Returns false when there is no memory for a copy; later checkpoints then do without one.
bool Trainer::TryToCopy(const std::function<void()>& copy) {
  try {
    copy();
    return true;
  } catch (const std::exception& error) {
    if (!IsOutOfMemory(error)) throw;
  }
  copies_checkpoints_ = false;
  reporter_.Warn("warning: no memory to copy the weights; training waits for checkpoints");
  return false;
}

void Trainer::AnnounceAdapters() {
  const AdapterLayout& layout = stepper_.layout();
  if (!layout.adapted()) return;
  const int64_t elements = layout.TrainedElements();
  int64_t modules = 0;
  for (const AdaptedMatrix& matrix : layout.matrices) {
    modules += static_cast<int64_t>(matrix.parts.size());
  }
  reporter_.Say(Format("lora    rank %lld on %lld linears%s%s; %.3f M parameters are trained",
                       static_cast<long long>(layout.lora.rank), static_cast<long long>(modules),
                       layout.lora.PacksBase() ? ", the model in 4 bits" : "",
                       layout.lora.init.empty() ? "" : (", from " + layout.lora.init).c_str(),
                       static_cast<double>(elements) * 1e-6));
}

void Trainer::Resume() {
  if (!speaks()) {
    if (!source_.checkpoint.empty()) Restore(ShareCheckpoint({}, *options_.group));
    return;
  }
  if (options_.resume.empty()) return RefuseToOverwrite();
  for (const std::string& reason : source_.skipped) {
    reporter_.Warn("warning: passed over: " + reason);
  }
  if (source_.checkpoint.empty()) {
    return reporter_.Say("resume  nothing to resume from in " + config_.checkpoint.dir);
  }
  LoadedCheckpoint loaded = std::move(*source_.loaded);
  if (options_.group != nullptr) loaded = ShareCheckpoint(std::move(loaded), *options_.group);
  Restore(std::move(loaded));
}

// Throws when a run that starts at step 0 would mix its checkpoints with another run's.
void Trainer::RefuseToOverwrite() const {
  if (config_.checkpoint.dir.empty()) return;
  const std::vector<int64_t> steps = ListCheckpoints(config_.checkpoint.dir);
  if (steps.empty()) return;
  throw ConfigError(
      "start in " + config_.checkpoint.dir + ": it already holds " + CheckpointName(steps.back()),
      "go on from it with --resume auto, or choose another --checkpoint-dir");
}

void Trainer::Restore(LoadedCheckpoint checkpoint) {
  for (const std::string& note :
       CheckResumable(checkpoint.state, config_, placement_, data_->digest(), checkpoint.path)) {
    reporter_.Warn("warning: not bit for bit: " + note);
  }
  if (data_->pairs()) references_.TakeFrom(&checkpoint.optimizer, *data_, checkpoint.path);
  stepper_.Load(std::move(checkpoint.weights), std::move(checkpoint.optimizer), checkpoint.path);
  progress_ = ProgressFromJson(checkpoint.state, checkpoint.path);
  stepper_.SetLossScale(progress_.loss_scale);
  if (progress_.micro_batch > 0 && KeepsMicroBatch(checkpoint.state, config_)) {
    stepper_.SetMicroBatch(progress_.micro_batch);
  }
  saved_step_ = checkpoint.path == config_.checkpoint.dir + "/" + CheckpointName(checkpoint.step)
                    ? checkpoint.step
                    : -1;
  if (saved_step_ >= 0) last_checkpoint_ = checkpoint.path;
  // Rank 0 alone knows the directory.
  if (options_.group != nullptr) {
    saved_step_ = std::stoll(options_.group->FromFirst(std::to_string(saved_step_)));
  }
  if (FitsShares(progress_.shares, config_)) {
    stepper_.SetShares(progress_.shares);
  } else {
    progress_.shares.clear();
  }
  reporter_.Say(Format("resume  from %s at step %lld", checkpoint.path.c_str(),
                       static_cast<long long>(progress_.step)));
  const std::string note = NoteOfOtherInit(checkpoint.state, config_);
  if (!note.empty() && !stepper_.layout().adapted()) reporter_.Say("resume  " + note);
}

}  // namespace gpuctl::trainer
