// The factor of the loss in fp16, with which small gradients do not become zero. As torch.amp's
// GradScaler changes it: doubled after 2000 updates without an overflow, halved at each overflow.

#ifndef TRAINER_STEP_LOSS_SCALE_H_
#define TRAINER_STEP_LOSS_SCALE_H_

#include <cstdint>

namespace gpuctl::trainer {

struct LossScale {
  static constexpr double kFirst = 65536;
  static constexpr int64_t kGrowEvery = 2000;

  double scale = kFirst;
  int64_t good_updates = 0;  // since the scale changed last

  void Updated() {
    if (++good_updates < kGrowEvery) return;
    scale *= 2;
    good_updates = 0;
  }
  void Overflowed() {
    scale /= 2;
    good_updates = 0;
  }
  // True when smaller factors cannot help: the values themselves are not finite.
  bool exhausted() const { return scale < 1; }
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_STEP_LOSS_SCALE_H_
