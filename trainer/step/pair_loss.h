// The loss of pairs of answers: direct preference optimization (DPO, Rafailov et al., arXiv
// 2305.18290). Uses no LibTorch.

#ifndef TRAINER_STEP_PAIR_LOSS_H_
#define TRAINER_STEP_PAIR_LOSS_H_

#include <cstdint>
#include <vector>

#include "trainer/config/config.h"

namespace gpuctl::trainer {

// Sums over pairs.
struct PairSums {
  double loss = 0;    // nats
  double right = 0;   // pairs whose margin is positive; a margin of 0 counts half
  double margin = 0;  // beta * ((pi_c - ref_c) - (pi_r - ref_r))
  int64_t pairs = 0;

  void Add(const PairSums& other);
};

// Takes the log-probabilities of answers, chosen and rejected ones in turn: pi of the model that is
// trained, ref of the one that the run began with. A pair's loss is, with a share s of exchanged
// labels, -(1 - s) log sigmoid(margin) - s log sigmoid(-margin). Adds each pair to `sums`. Returns
// for each answer the derivative of the sum of losses by -pi.
std::vector<double> AddPairs(const DpoConfig& config, const std::vector<float>& pi,
                             const float* ref, PairSums* sums);

}  // namespace gpuctl::trainer

#endif  // TRAINER_STEP_PAIR_LOSS_H_
