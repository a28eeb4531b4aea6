// What the processes of a run find and decide together before they train.

#ifndef TRAINER_TRAIN_TOGETHER_H_
#define TRAINER_TRAIN_TOGETHER_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/config.h"
#include "trainer/data/training_data.h"
#include "trainer/ranks/group.h"
#include "trainer/step/device.h"
#include "trainer/train/model_source.h"

namespace gpuctl::trainer {

// FindModel for each process of the group (or null, for one process). Rank 0 alone looks for
// checkpoints and resumes; the others learn which one it is, and need only model.init, or the
// checkpoint where that folder is gone.
ModelSource FindModelTogether(const Config& config, const std::string& resume, Group* group);

// Returns how much of this machine's memory the first process of the group (or null, for one
// process) holds until the first step, if it is on this machine; `held`: this process's own. All
// processes call it.
int64_t HeldOnMachine(const Config& config, int64_t held, Group* group);

struct Agreement {
  bool writes = false;      // whether the run writes checkpoints
  int64_t micro_batch = 0;  // the smallest that memory allows any of them
};

// Throws Error(kBadConfig) on a rank whose settings, dtype or data differ from rank 0's.
Agreement Agree(const Config& config, const Placement& placement, const TrainingData& data,
                int64_t micro_batch, Group* group);

// Gives the checkpoint that rank 0 has loaded to all ranks; the others' argument is empty.
LoadedCheckpoint ShareCheckpoint(LoadedCheckpoint loaded, Group& group);

// True for shares of a batch that can be those of this run.
bool FitsShares(const std::vector<int64_t>& shares, const Config& config);

// How fast this process works, from the first steps: the first one warms up, the fastest of the
// others counts.
class SpeedMeter {
 public:
  // Returns true when the speed is known. It is asked in each step until then.
  bool Add(int64_t rows, double seconds) {
    if (steps_++ > 0) fastest_ = std::min(fastest_, seconds / static_cast<double>(rows));
    return steps_ > kMeasured;
  }
  double speed() const { return 1 / std::max(fastest_, 1e-9); }  // rows a second

 private:
  static constexpr int64_t kMeasured = 4;
  int64_t steps_ = 0;
  double fastest_ = 1e9;  // seconds a row
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_TOGETHER_H_
