// The loss on held-out data.

#ifndef TRAINER_TRAIN_EVALUATE_H_
#define TRAINER_TRAIN_EVALUATE_H_

#include <cstdint>
#include <functional>

#include "trainer/data/training_data.h"
#include "trainer/step/stepper.h"
#include "trainer/train/references.h"

namespace gpuctl::trainer {

struct HeldOutLoss {
  bool finished = false;  // false: stopped, nothing else is set
  double mean = 0;        // nats per scored token, or per pair
  int64_t tokens = 0;     // scored
  PairSums pairs;         // of pairs
};

// Takes the mean over all held-out windows of `data`. `summed_loss` returns the sum over a batch.
// Calls `stop` between batches.
HeldOutLoss MeanHeldOutLoss(const TrainingData& data, int64_t context,
                            const std::function<double(const Batch&)>& summed_loss,
                            const std::function<bool()>& stop);

// The same for pairs.
HeldOutLoss MeanHeldOutPairLoss(
    const TrainingData& data, int64_t context, const DpoConfig& dpo, const References& references,
    const std::function<std::vector<float>(const Batch&)>& log_probabilities,
    const std::function<bool()>& stop);

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_EVALUATE_H_
