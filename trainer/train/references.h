// What the model that a run began with says of its pairs of answers: the reference of DPO. It is
// computed once, before the first step, and is a part of every checkpoint; so no second model is
// held in memory.

#ifndef TRAINER_TRAIN_REFERENCES_H_
#define TRAINER_TRAIN_REFERENCES_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/data/training_data.h"
#include "trainer/step/stepper.h"

namespace gpuctl::trainer {

// Makes a batch of windows of pairs that is as long as its longest row. `row_of` gives the row of
// the i-th window.
Batch MakePairs(const TrainingData& data, bool held_out, int64_t context, int64_t windows,
                const std::function<int64_t(int64_t window)>& row_of);

// The log-probability of every row of both parts. Thread-safe once it is known.
class References {
 public:
  bool known() const { return parts_[0].defined(); }

  // Computes them; `log_probabilities` returns one for each row of a batch. Calls `stop` between
  // batches, and returns false when it said so. Throws Error(kDiverged) when one is not finite.
  bool Compute(const TrainingData& data, int64_t context,
               const std::function<std::vector<float>(const Batch&)>& log_probabilities,
               const std::function<bool()>& stop);

  // Appends them as they are in a checkpoint.
  void AppendTo(NamedTensors* named) const;
  // Takes them out of a checkpoint's tensors. Throws Error(kBadData) unless it has a possible one
  // for each row; `what` names the source.
  void TakeFrom(std::map<std::string, at::Tensor>* stored, const TrainingData& data,
                const std::string& what);

  float Of(bool held_out, int64_t row) const {
    return parts_[held_out ? 1 : 0].data_ptr<float>()[row];
  }

 private:
  at::Tensor parts_[2];  // fp32 on the CPU: of training, held out
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_REFERENCES_H_
