#include "trainer/adapters/low_rank.h"

#include <algorithm>
#include <cmath>

#include "trainer/base/vectors.h"

namespace gpuctl::trainer {
namespace {

constexpr int64_t kBlock = 512;  // columns: their sums stay in the nearest cache

TRAINER_WIDEST_VECTORS void AddScaledRow(float factor, const float* from, int64_t count,
                                         float* into) {
  for (int64_t i = 0; i < count; ++i) into[i] += factor * from[i];
}

}  // namespace

void AddLowRank(const float* b, const float* a, int64_t rows, int64_t rank, int64_t columns,
                float scale, float* w) {
  for (int64_t first = 0; first < columns; first += kBlock) {
    const int64_t count = std::min(kBlock, columns - first);
    for (int64_t row = 0; row < rows; ++row) {
      float sums[kBlock] = {};
      for (int64_t k = 0; k < rank; ++k) {
        AddScaledRow(b[row * rank + k], a + k * columns + first, count, sums);
      }
      AddScaledRow(scale, sums, count, w + row * columns + first);
    }
  }
}

void SetLengths(const float* magnitudes, int64_t rows, int64_t columns, float* w) {
  for (int64_t row = 0; row < rows; ++row) {
    float* numbers = w + row * columns;
    double squares = 0;
    for (int64_t i = 0; i < columns; ++i) {
      squares += static_cast<double>(numbers[i]) * static_cast<double>(numbers[i]);
    }
    if (squares == 0) continue;
    const auto factor = static_cast<float>(magnitudes[row] / std::sqrt(squares));
    for (int64_t i = 0; i < columns; ++i) numbers[i] *= factor;
  }
}

}  // namespace gpuctl::trainer
