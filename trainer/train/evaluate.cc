#include "trainer/train/evaluate.h"

#include <algorithm>

namespace gpuctl::trainer {
namespace {

// Windows of a batch; only one batch is in memory.
constexpr int64_t kEvalRows = 64;

}  // namespace

HeldOutLoss MeanHeldOutLoss(const TrainingData& data, int64_t context,
                            const std::function<double(const Batch&)>& summed_loss,
                            const std::function<bool()>& stop) {
  HeldOutLoss loss;
  const int64_t windows = data.held_out_windows();
  double sum = 0;
  for (int64_t first = 0; first < windows; first += kEvalRows) {
    if (stop()) return {};
    const Batch batch = MakeBatch(
        std::min(kEvalRows, windows - first), context, data.packed(),
        [&](int64_t row, const WindowSlot& slot) { return data.FillHeldOut(first + row, slot); });
    sum += summed_loss(batch);
    loss.tokens += batch.scored;
  }
  loss.finished = true;
  loss.mean = sum / static_cast<double>(std::max<int64_t>(1, loss.tokens));
  return loss;
}

}  // namespace gpuctl::trainer
