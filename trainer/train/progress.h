// The progress of a training run.

#ifndef TRAINER_TRAIN_PROGRESS_H_
#define TRAINER_TRAIN_PROGRESS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/step/loss_scale.h"

namespace gpuctl::trainer {

// The state of a run. Everything else follows from it, the weights and the configuration.
struct Progress {
  int64_t step = 0;                     // optimizer steps done
  int64_t tokens = 0;                   // scored tokens seen
  int64_t next_window = 0;              // of TrainingWindows
  std::optional<double> held_out_loss;  // after this step, if it was evaluated
  double loss = 0;
  std::optional<double> best_loss;   // the lowest held-out loss so far
  int64_t best_step = 0;             // its step
  int64_t worse_evaluations = 0;     // since then
  int64_t micro_batch = 0;           // in use; 0: unknown
  LossScale loss_scale;              // in fp16
  int64_t skipped = 0;               // steps without an update, because fp16 overflowed
  std::vector<int64_t> shares = {};  // of the processes in each batch, by their speed; else empty
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_PROGRESS_H_
