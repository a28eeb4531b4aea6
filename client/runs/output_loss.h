// What a node could not store of a job's output and metrics.
#ifndef GPUCTL_CLIENT_RUNS_OUTPUT_LOSS_H_
#define GPUCTL_CLIENT_RUNS_OUTPUT_LOSS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/job/lifecycle.h"

namespace gpuctl {

// The losses of a job. Its stored output has no hole there: the next byte follows at once.
struct OutputLoss {
  struct Place {
    int64_t offset = 0;  // in the stored output
    int64_t bytes = 0;
  };
  std::vector<Place> places;
  int64_t bytes = 0;  // of all places
  int64_t metric_lines = 0;

  bool any() const { return bytes > 0 || metric_lines > 0; }
};
OutputLoss LossOf(const Lifecycle& lifecycle);

// Returns a sentence for the user that says how much is missing and where; "" for no loss.
std::string DescribeLoss(const OutputLoss& loss);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RUNS_OUTPUT_LOSS_H_
