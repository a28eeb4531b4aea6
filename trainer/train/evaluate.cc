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

HeldOutLoss MeanHeldOutPairLoss(
    const TrainingData& data, int64_t context, const DpoConfig& dpo, const References& references,
    const std::function<std::vector<float>(const Batch&)>& log_probabilities,
    const std::function<bool()>& stop) {
  HeldOutLoss loss;
  const int64_t windows = data.held_out_windows();
  for (int64_t first = 0; first < windows; first += kEvalRows) {
    if (stop()) return {};
    const int64_t count = std::min(kEvalRows, windows - first);
    const auto row_of = [&](int64_t window) { return data.HeldOutRow(first + window); };
    const Batch batch = MakePairs(data, /*held_out=*/true, context, count, row_of);
    std::vector<float> ref;
    for (int64_t i = 0; i < count; ++i) ref.push_back(references.Of(/*held_out=*/true, row_of(i)));
    AddPairs(dpo, log_probabilities(batch), ref.data(), &loss.pairs);
    loss.tokens += batch.scored;
  }
  loss.finished = true;
  loss.mean = loss.pairs.loss / static_cast<double>(std::max<int64_t>(1, loss.pairs.pairs));
  return loss;
}

}  // namespace gpuctl::trainer
