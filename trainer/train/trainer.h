// A training run, from its configuration to its end.

#ifndef TRAINER_TRAIN_TRAINER_H_
#define TRAINER_TRAIN_TRAINER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "trainer/base/error.h"
#include "trainer/checkpoint/base_digest.h"
#include "trainer/checkpoint/checkpointer.h"
#include "trainer/checkpoint/directory_lock.h"
#include "trainer/config/config.h"
#include "trainer/data/training_data.h"
#include "trainer/ranks/group.h"
#include "trainer/step/device.h"
#include "trainer/step/memory.h"
#include "trainer/step/stepper.h"
#include "trainer/train/batch_ahead.h"
#include "trainer/train/model_source.h"
#include "trainer/train/progress.h"
#include "trainer/train/references.h"
#include "trainer/train/report.h"
#include "trainer/train/samples.h"
#include "trainer/train/together.h"

namespace gpuctl::trainer {

struct RunOptions {
  Config config;
  std::string resume;        // "", "auto", or the path of a checkpoint
  std::string metrics_path;  // "" for none
  // Called between micro-batches and while generating; not 0: save and end.
  std::function<int()> stop_signal = [] { return 0; };
  // The other processes of the run, or null. It outlives the Trainer. Rank 0 alone has a checkpoint
  // directory, metrics, and `resume`.
  Group* group = nullptr;
};

class Trainer {
 public:
  // Reads the data and, when resuming, the checkpoint. Throws Error.
  explicit Trainer(RunOptions options);

  // Trains to the last step, or until the stop signal. Returns the signal, or 0 when finished.
  // Throws Error(kDiverged) before an optimizer step whose loss or gradient is not finite;
  // Error(kIo) when the last checkpoint cannot be written, Error(kTryAgain) when memory was short
  // for it.
  int Train();

 private:
  using Clock = std::chrono::steady_clock;

  void Resume();
  void RefuseToOverwrite() const;
  void Restore(LoadedCheckpoint checkpoint);
  void Announce();
  void AnnounceAdapters();

  Batch MakeTrainingBatch(int64_t first_window) const;
  GradientResult StepGradients(const Batch& batch);
  void RefuseIfNotFinite(const GradientResult& gradients) const;
  void Advance(const Batch& batch, const GradientResult& gradients);
  void DivideBySpeed();
  void ReportStep(const GradientResult& gradients, double lr);
  bool EvalDue() const;
  void Evaluate();
  bool FindReferences();
  void CompareWithBest();
  bool OutOfPatience() const;
  bool CheckpointDue() const;
  void SaveCheckpoint();
  void MakeRoomForCopies();
  bool SaveCopy();
  Snapshot CopyTensorsInto(Snapshot written);
  bool TryToCopy(const std::function<void()>& copy);
  void ReportCheckpoints();
  void SaveLastCheckpoint();
  void ShowSamples();
  int Leave(const char* outcome);
  Snapshot LiveSnapshot() const;
  NamedTensors OptimizerTensors() const;
  bool Stopping() const { return options_.stop_signal() != 0; }
  int AgreedStop() const;
  bool AgreedOn(bool mine) const;
  bool speaks() const { return options_.group == nullptr || options_.group->rank() == 0; }
  bool writes() const { return agreement_.writes; }

  DirectoryLock lock_;
  const ModelSource source_;
  const std::unique_ptr<const TrainingData> data_;
  const RunOptions options_;  // with the model of source_, and all lengths in steps
  const Config& config_;
  const Sampler sampler_;
  Reporter reporter_;
  const double sgemm_gflops_;
  const MemoryPlan memory_;
  const Placement placement_;
  const Agreement agreement_;
  // Of model.init, for checkpoints of adapters; null where nobody needs it.
  std::unique_ptr<BackgroundBaseDigest> base_digest_;
  Stepper stepper_;
  References references_;  // of pairs
  BatchAhead batches_;
  std::unique_ptr<Checkpointer> checkpointer_;  // null without a checkpoint directory
  Progress progress_;
  int64_t saved_step_ = -1;         // last step given to the writer
  int64_t sampled_step_ = -1;       // last step whose samples were shown
  std::string last_checkpoint_;     // the last published one
  std::string checkpoint_failure_;  // of the last one, or ""
  ExitCode checkpoint_code_ = ExitCode::kDone;
  bool copies_checkpoints_;  // false: training waits while one is written
  bool made_room_ = false;   // for copies
  SpeedMeter speeds_;
  Clock::time_point started_;
  Clock::time_point step_started_;
  double interval_seconds_ = 0;  // since the last step line
  int64_t interval_tokens_ = 0;
  int64_t interval_scored_ = 0;  // of them with a target
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_TRAINER_H_
