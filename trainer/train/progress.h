// The progress of a training run.

#ifndef TRAINER_TRAIN_PROGRESS_H_
#define TRAINER_TRAIN_PROGRESS_H_

#include <cstdint>
#include <optional>

namespace gpuctl::trainer {

// The state of a run. Everything else follows from it, the weights and the configuration.
struct Progress {
  int64_t step = 0;         // optimizer steps done
  int64_t tokens = 0;       // scored tokens seen
  int64_t next_window = 0;  // of TrainingWindows
  std::optional<double> held_out_loss;
  double loss = 0;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_PROGRESS_H_
