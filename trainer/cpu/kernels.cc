// Compiled with -O3 -fopenmp-simd -ffp-contract=fast: `omp simd` lets the compiler add in several
// lanes, which is a fixed order for a fixed length.

#include "trainer/cpu/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "trainer/base/vectors.h"
#include "trainer/cpu/sgemm.h"

namespace gpuctl::trainer::cpu {
namespace {

// Returns exp for x <= 88, within 2 units in the last place; below -87 it stays at the smallest
// normal number. NaN stays NaN: the form of the comparison does not treat it as small.
__attribute__((always_inline)) inline float Exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  const float shifted = x * 1.44269504088896341f + kRound;
  const float n = shifted - kRound;
  float r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float y = p * r * r + r + 1.0f;
  uint32_t bits;  // the low end is n, in two's complement
  std::memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits + 127) << 23;
  float power;  // 2^n
  std::memcpy(&power, &bits, sizeof(power));
  return y * power;
}

// Computes values = exp(values - largest); returns their sum.
__attribute__((always_inline)) inline float ExpRow(int64_t count, float* __restrict values) {
  float largest = values[0];
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < count; ++i) largest = values[i] > largest ? values[i] : largest;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) {
    values[i] = Exp(values[i] - largest);
    sum += values[i];
  }
  return sum;
}

__attribute__((always_inline)) inline void ScaleRow(int64_t count, float factor,
                                                    float* __restrict values) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) values[i] *= factor;
}

__attribute__((always_inline)) inline float Dot(int64_t count, const float* __restrict a,
                                                const float* __restrict b) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

constexpr float kGeluScale = 1.5957691216057308f;  // 2 sqrt(2 / pi)
constexpr float kGeluCube = 0.044715f;

// Returns sigmoid(2 u) for GELU, exactly 0 where exp would leave its range. NaN stays NaN: the form
// of the comparison does not limit it.
__attribute__((always_inline)) inline float GeluSigmoid(float x) {
  const float minus = -kGeluScale * x * (1.0f + kGeluCube * x * x);
  return minus > 87.0f ? 0.0f : 1.0f / (1.0f + Exp(minus));
}

__attribute__((always_inline)) inline void TurnHead(int64_t half, float multiply, float direction,
                                                    const float* __restrict cos,
                                                    const float* __restrict sin,
                                                    const float* __restrict from,
                                                    float* __restrict to) {
#pragma omp simd
  for (int64_t e = 0; e < half; ++e) {
    const float c = cos[e] * multiply;
    const float s = sin[e] * multiply * direction;
    to[e] = from[e] * c - from[half + e] * s;
    to[half + e] = from[half + e] * c + from[e] * s;
  }
}

}  // namespace

TRAINER_WIDEST_VECTORS
void SumColumns(int64_t rows, int64_t vocab, const float* logits, float* __restrict largest,
                float* __restrict sums) {
  std::copy(logits, logits + rows, largest);
  for (int64_t v = 1; v < vocab; ++v) {
    const float* __restrict values = logits + v * rows;
#pragma omp simd
    for (int64_t i = 0; i < rows; ++i) largest[i] = values[i] > largest[i] ? values[i] : largest[i];
  }
  std::fill(sums, sums + rows, 0.0f);
  for (int64_t v = 0; v < vocab; ++v) {
    const float* __restrict values = logits + v * rows;
#pragma omp simd
    for (int64_t i = 0; i < rows; ++i) sums[i] += Exp(values[i] - largest[i]);
  }
}

TRAINER_WIDEST_VECTORS
double SumLosses(int64_t rows, int64_t parts, const ColumnTargets& of, float scale,
                 float* __restrict largest, float* __restrict sums) {
  for (int64_t part = 1; part < parts; ++part) {
    const float* __restrict const most = largest + part * rows, * __restrict const sum =
                                                                    sums + part * rows;
#pragma omp simd
    for (int64_t i = 0; i < rows; ++i) {
      const float all = most[i] > largest[i] ? most[i] : largest[i];
      sums[i] = sums[i] * Exp(largest[i] - all) + sum[i] * Exp(most[i] - all);
      largest[i] = all;
    }
  }
  double loss = 0;
  for (int64_t i = 0; i < rows; ++i) {
    if (of.targets[i] < 0) {
      sums[i] = 0;
      continue;
    }
    const float factor = of.weights == nullptr ? scale : scale * of.weights[i];
    loss += static_cast<double>(factor) * (std::log(static_cast<double>(sums[i])) +
                                           static_cast<double>(largest[i] - of.logits[i]));
    sums[i] = factor / sums[i];
  }
  return loss;
}

TRAINER_WIDEST_VECTORS
void ScaleColumns(int64_t rows, int64_t vocab, const float* __restrict largest,
                  const float* __restrict factors, float* logits) {
  for (int64_t v = 0; v < vocab; ++v) {
    float* __restrict values = logits + v * rows;
#pragma omp simd
    for (int64_t i = 0; i < rows; ++i) {
      const float scaled = factors[i] * Exp(values[i] - largest[i]);
      values[i] = factors[i] == 0.0f ? 0.0f : scaled;
    }
  }
}

TRAINER_WIDEST_VECTORS
void LargestOfPanel(int64_t vocab, const float* logits, float* __restrict largest) {
  float most[kPanelColumns];
  std::copy(logits, logits + kPanelColumns, most);
  for (int64_t v = 1; v < vocab; ++v) {
    const float* __restrict values = logits + v * kPanelColumns;
#pragma omp simd
    for (int64_t i = 0; i < kPanelColumns; ++i) most[i] = values[i] > most[i] ? values[i] : most[i];
  }
  std::copy(most, most + kPanelColumns, largest);
}

TRAINER_WIDEST_VECTORS
void ExpPanel(int64_t vocab, const float* __restrict reference, float* logits,
              float* __restrict sums) {
  float sum[kPanelColumns] = {};
  for (int64_t v = 0; v < vocab; ++v) {
    float* __restrict values = logits + v * kPanelColumns;
#pragma omp simd
    for (int64_t i = 0; i < kPanelColumns; ++i) {
      values[i] = Exp(values[i] - reference[i]);
      sum[i] += values[i];
    }
  }
  for (int64_t i = 0; i < kPanelColumns; ++i) sums[i] += sum[i];
}

TRAINER_WIDEST_VECTORS
void ScalePanel(int64_t rows, const float* __restrict factors, float* values) {
  for (int64_t row = 0; row < rows; ++row) {
    float* __restrict of_row = values + row * kPanelColumns;
#pragma omp simd
    for (int64_t i = 0; i < kPanelColumns; ++i) of_row[i] *= factors[i];
  }
}

TRAINER_WIDEST_VECTORS
void AddPanel(int64_t rows, const float* __restrict factors, const float* __restrict values,
              float* __restrict sums) {
  for (int64_t row = 0; row < rows; ++row) {
#pragma omp simd
    for (int64_t i = 0; i < kPanelColumns; ++i) {
      sums[row * kPanelColumns + i] += factors[i] * values[row * kPanelColumns + i];
    }
  }
}

// Returns the first key that the row sees.
inline int64_t FirstVisible(const VisibleKeys& of, int64_t matrix, int64_t row) {
  const int64_t begin = std::max<int64_t>(0, of.visible + row - of.window);
  if (of.starts == nullptr) return begin;
  return std::max(begin, of.starts[matrix / of.window_matrices * of.starts_stride + row] - of.low);
}

TRAINER_WIDEST_VECTORS
void CausalSoftmax(int64_t first, int64_t last, int64_t rows, const VisibleKeys& of,
                   float* scores) {
  for (int64_t matrix = first; matrix < last; ++matrix) {
    for (int64_t row = 0; row < rows; ++row) {
      float* values = scores + (matrix * rows + row) * of.keys;
      const int64_t end = std::min(of.keys, of.visible + row);
      const int64_t begin = FirstVisible(of, matrix, row);
      const float sum = ExpRow(end - begin, values + begin);
      ScaleRow(end - begin, 1.0f / sum, values + begin);
      std::fill(values, values + begin, 0.0f);
      std::fill(values + end, values + of.keys, 0.0f);
    }
  }
}

TRAINER_WIDEST_VECTORS
void CausalSoftmaxBackward(int64_t first, int64_t last, int64_t rows, const VisibleKeys& of,
                           const float* p, float* d_p) {
  for (int64_t matrix = first; matrix < last; ++matrix) {
    for (int64_t row = 0; row < rows; ++row) {
      const float* __restrict weight = p + (matrix * rows + row) * of.keys;
      float* __restrict values = d_p + (matrix * rows + row) * of.keys;
      const int64_t end = std::min(of.keys, of.visible + row);
      const int64_t begin = FirstVisible(of, matrix, row);
      const float dot = Dot(end - begin, weight + begin, values + begin);
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) values[i] = weight[i] * (values[i] - dot);
      std::fill(values, values + begin, 0.0f);
      std::fill(values + end, values + of.keys, 0.0f);
    }
  }
}

TRAINER_WIDEST_VECTORS
void SwiGlu(int64_t rows, int64_t ffn, const float* gate_up, float* out) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* __restrict gate = gate_up + row * 2 * ffn;
    const float* __restrict up = gate + ffn;
    float* __restrict result = out + row * ffn;
#pragma omp simd
    for (int64_t i = 0; i < ffn; ++i) {
      // 88 keeps Exp in range; silu is 0 there to within rounding, with or without the limit.
      const float minus = gate[i] < -88.0f ? 88.0f : -gate[i];
      result[i] = gate[i] / (1.0f + Exp(minus)) * up[i];
    }
  }
}

TRAINER_WIDEST_VECTORS
void SwiGluBackward(int64_t rows, int64_t ffn, const float* gate_up, const float* d_out,
                    float* d_gate_up) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* __restrict gate = gate_up + row * 2 * ffn;
    const float* __restrict up = gate + ffn;
    const float* __restrict dy = d_out + row * ffn;
    float* __restrict d_gate = d_gate_up + row * 2 * ffn;
    float* __restrict d_up = d_gate + ffn;
#pragma omp simd
    for (int64_t i = 0; i < ffn; ++i) {
      const float minus = gate[i] < -88.0f ? 88.0f : -gate[i];
      const float sigmoid = 1.0f / (1.0f + Exp(minus));
      d_up[i] = dy[i] * gate[i] * sigmoid;
      d_gate[i] = dy[i] * up[i] * sigmoid * (1.0f + gate[i] * (1.0f - sigmoid));
    }
  }
}

// gelu(x) = x (1 + tanh u) / 2 = x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3) (Hendrycks
// and Gimpel, arXiv 1606.08415).
TRAINER_WIDEST_VECTORS
void GeGlu(int64_t rows, int64_t ffn, const float* gate_up, float* out) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* __restrict gate = gate_up + row * 2 * ffn;
    const float* __restrict up = gate + ffn;
    float* __restrict result = out + row * ffn;
#pragma omp simd
    for (int64_t i = 0; i < ffn; ++i) {
      result[i] = gate[i] * GeluSigmoid(gate[i]) * up[i];
    }
  }
}

TRAINER_WIDEST_VECTORS
void GeGluBackward(int64_t rows, int64_t ffn, const float* gate_up, const float* d_out,
                   float* d_gate_up) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* __restrict gate = gate_up + row * 2 * ffn;
    const float* __restrict up = gate + ffn;
    const float* __restrict dy = d_out + row * ffn;
    float* __restrict d_gate = d_gate_up + row * 2 * ffn;
    float* __restrict d_up = d_gate + ffn;
#pragma omp simd
    for (int64_t i = 0; i < ffn; ++i) {
      const float sigmoid = GeluSigmoid(gate[i]);
      const float slope = kGeluScale * (1.0f + 3.0f * kGeluCube * gate[i] * gate[i]);  // of 2 u
      const float change = sigmoid * (1.0f - sigmoid);
      // Where the sigmoid does not change, slope may be infinite.
      const float bent = change == 0.0f ? 0.0f : gate[i] * change * slope;
      d_up[i] = dy[i] * gate[i] * sigmoid;
      d_gate[i] = dy[i] * up[i] * (sigmoid + bent);
    }
  }
}

TRAINER_WIDEST_VECTORS
void RmsNorm(int64_t rows, int64_t width, float eps, const float* x, const float* weight,
             float* out, float* scale) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* __restrict from = x + row * width;
    float* __restrict to = out + row * width;
    const float mean = Dot(width, from, from) / static_cast<float>(width);
    const float factor = 1.0f / std::sqrt(mean + eps);
    scale[row] = factor;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) to[i] = from[i] * factor * weight[i];
  }
}

// With u = x scale and g = d_out weight, computes  d_x = scale (g - u mean(g u)).
TRAINER_WIDEST_VECTORS
void RmsNormBackward(int64_t rows, int64_t width, const float* x, const float* weight,
                     const float* scale, const float* d_out, float* d_x, float* d_weight) {
  std::fill(d_weight, d_weight + width, 0.0f);
  for (int64_t row = 0; row < rows; ++row) {
    const float* __restrict from = x + row * width;
    const float* __restrict dy = d_out + row * width;
    float* __restrict dx = d_x + row * width;
    const float factor = scale[row];
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < width; ++i) {
      const float product = dy[i] * from[i] * factor;
      dot += product * weight[i];
      d_weight[i] += product;
    }
    const float back = dot / static_cast<float>(width) * factor * factor;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) dx[i] = dy[i] * weight[i] * factor - from[i] * back;
  }
}

TRAINER_WIDEST_VECTORS
void SplitHeads(const HeadMove& move, int64_t first, int64_t last, const float* cos,
                const float* sin, const float* fused, float* split) {
  const int64_t half = move.head_dim / 2;
  for (int64_t row = first; row < last; ++row) {
    const int64_t window = row / move.tokens, token = row % move.tokens;
    const float* from = fused + row * move.row_stride;
    for (int64_t head = 0; head < move.heads; ++head, from += move.head_dim) {
      float* to = split + ((window * move.heads + head) * move.tokens + token) * move.head_dim;
      if (cos == nullptr) {
        std::copy(from, from + move.head_dim, to);
      } else {
        const int64_t at = (window * move.angles_stride + token) * half;
        TurnHead(half, move.multiply, 1.0f, cos + at, sin + at, from, to);
      }
    }
  }
}

TRAINER_WIDEST_VECTORS
void MergeHeads(const HeadMove& move, int64_t first, int64_t last, const float* cos,
                const float* sin, const float* split, float* fused) {
  const int64_t half = move.head_dim / 2;
  for (int64_t row = first; row < last; ++row) {
    const int64_t window = row / move.tokens, token = row % move.tokens;
    float* to = fused + row * move.row_stride;
    for (int64_t head = 0; head < move.heads; ++head, to += move.head_dim) {
      const float* from =
          split + ((window * move.heads + head) * move.tokens + token) * move.head_dim;
      if (cos == nullptr) {
        std::copy(from, from + move.head_dim, to);
      } else {
        const int64_t at = (window * move.angles_stride + token) * half;
        TurnHead(half, move.multiply, -1.0f, cos + at, sin + at, from, to);
      }
    }
  }
}

}  // namespace gpuctl::trainer::cpu
