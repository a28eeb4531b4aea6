#include "trainer/train/references.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "trainer/base/error.h"

namespace gpuctl::trainer {
namespace {

// Rounding may leave a sum a little above 0.
bool IsPossible(float log_probability) {
  return std::isfinite(log_probability) && log_probability < 1;
}

constexpr int64_t kReferenceRows = 64;  // of a batch; only one is in memory
const char* const kReferenceNames[] = {"dpo.reference.train", "dpo.reference.held_out"};

}  // namespace

Batch MakePairs(const TrainingData& data, bool held_out, int64_t context, int64_t windows,
                const std::function<int64_t(int64_t)>& row_of) {
  Batch batch =
      MakeBatch(windows, context, data.packed(), [&](int64_t window, const WindowSlot& slot) {
        return data.FillRow(held_out, row_of(window), slot);
      });
  TrimPlaces(&batch);
  return batch;
}

bool References::Compute(const TrainingData& data, int64_t context,
                         const std::function<std::vector<float>(const Batch&)>& log_probabilities,
                         const std::function<bool()>& stop) {
  at::Tensor found[2];
  for (const bool held_out : {false, true}) {
    const int64_t rows = data.rows(held_out);
    at::Tensor& part = found[held_out ? 1 : 0];
    part = at::empty({rows}, at::kFloat);
    for (int64_t first = 0; first < rows; first += kReferenceRows) {
      if (stop()) return false;
      const Batch batch = MakePairs(data, held_out, context, std::min(kReferenceRows, rows - first),
                                    [&](int64_t window) { return first + window; });
      const std::vector<float> of_rows = log_probabilities(batch);
      if (!std::all_of(of_rows.begin(), of_rows.end(), IsPossible)) {
        throw Error(ExitCode::kDiverged,
                    "the model that the run begins with gives an answer no finite probability",
                    "look for weights that are not finite");
      }
      std::copy(of_rows.begin(), of_rows.end(), part.data_ptr<float>() + first);
    }
  }
  std::copy(found, found + 2, parts_);
  return true;
}

void References::AppendTo(NamedTensors* named) const {
  if (!known()) return;
  for (int part = 0; part < 2; ++part) named->emplace_back(kReferenceNames[part], parts_[part]);
}

void References::TakeFrom(std::map<std::string, at::Tensor>* stored, const TrainingData& data,
                          const std::string& what) {
  for (int part = 0; part < 2; ++part) {
    const std::string name = kReferenceNames[part];
    const auto found = stored->find(name);
    if (found == stored->end()) throw DataError("load " + what + ": it has no " + name);
    const at::Tensor& numbers = found->second;
    if (numbers.scalar_type() != at::kFloat || numbers.dim() != 1 ||
        numbers.size(0) != data.rows(part == 1)) {
      throw DataError("load " + what + ": " + name + " has another shape or dtype");
    }
    parts_[part] = numbers.contiguous();
    const float* begin = parts_[part].data_ptr<float>();
    if (!std::all_of(begin, begin + numbers.size(0), IsPossible)) {
      throw DataError("load " + what + ": " + name + " has a number that is no log-probability");
    }
    stored->erase(found);
  }
}

}  // namespace gpuctl::trainer
