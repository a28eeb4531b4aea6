#include "trainer/linear/nf4.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "trainer/linear/threads.h"

namespace gpuctl::trainer {
namespace {

constexpr int64_t kBlock = 64;        // values that share a magnitude
constexpr int64_t kOuterBlock = 256;  // magnitudes that share one

// Quantiles of the normal distribution, from the paper's appendix.
constexpr std::array<float, 16> kValues = {-1.0f,
                                           -0.6961928009986877f,
                                           -0.5250730514526367f,
                                           -0.39491748809814453f,
                                           -0.28444138169288635f,
                                           -0.18477343022823334f,
                                           -0.09105003625154495f,
                                           0.0f,
                                           0.07958029955625534f,
                                           0.16093020141124725f,
                                           0.24611230194568634f,
                                           0.33791524171829224f,
                                           0.44070982933044434f,
                                           0.5626170039176941f,
                                           0.7229568362236023f,
                                           1.0f};

// The 8-bit numbers of the second step (Dettmers, arXiv 2110.02861): for each power of ten from
// 1e-6 to 1 twice as many as for the one before, in equal steps, with both signs; 0 and 1.
std::array<float, 256> MakeOuterValues() {
  std::vector<float> values = {0.0f, 1.0f};
  for (int exponent = 0; exponent < 7; ++exponent) {
    const int count = 1 << exponent;
    const double power = std::pow(10.0, exponent - 6);
    for (int i = 0; i < count; ++i) {
      const double middle = 0.1 + 0.9 * (i + 0.5) / count;
      values.push_back(static_cast<float>(power * middle));
      values.push_back(static_cast<float>(-power * middle));
    }
  }
  std::sort(values.begin(), values.end());
  std::array<float, 256> sorted;
  std::copy(values.begin(), values.end(), sorted.begin());
  return sorted;
}

const std::array<float, 256>& OuterValues() {
  static const std::array<float, 256> values = MakeOuterValues();
  return values;
}

// Returns the index of the nearest number of a sorted list.
template <size_t size>
uint8_t Nearest(const std::array<float, size>& sorted, float value) {
  const auto above = std::lower_bound(sorted.begin(), sorted.end(), value);
  if (above == sorted.begin()) return 0;
  if (above == sorted.end()) return size - 1;
  const auto index = static_cast<uint8_t>(above - sorted.begin());
  return value - *(above - 1) <= *above - value ? index - 1 : index;
}

// The places of the parts of a quantized matrix, in bytes.
struct Nf4Layout {
  explicit Nf4Layout(int64_t values)
      : blocks((values + kBlock - 1) / kBlock),
        outer_blocks((blocks + kOuterBlock - 1) / kOuterBlock),
        inner(4 + 4 * outer_blocks),
        codes(inner + blocks),
        bytes((codes + (values + 1) / 2 + 3) / 4 * 4) {}
  int64_t blocks;
  int64_t outer_blocks;
  int64_t inner;  // bytes of the second step; before them the mean and the outer magnitudes
  int64_t codes;
  int64_t bytes;
};

float LargestMagnitude(const float* values, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(values[i]));
  return largest;
}

// Writes the second step: mean, outer magnitudes and bytes.
void QuantizeMagnitudes(std::vector<float> magnitudes, const Nf4Layout& layout, uint8_t* packed) {
  auto* head = reinterpret_cast<float*>(packed);
  double sum = 0;
  for (const float magnitude : magnitudes) sum += magnitude;
  head[0] = static_cast<float>(sum / static_cast<double>(std::max<int64_t>(1, layout.blocks)));
  for (float& magnitude : magnitudes) magnitude -= head[0];
  for (int64_t outer = 0; outer < layout.outer_blocks; ++outer) {
    const int64_t first = outer * kOuterBlock;
    const int64_t count = std::min(kOuterBlock, layout.blocks - first);
    const float largest = LargestMagnitude(magnitudes.data() + first, count);
    head[1 + outer] = largest;
    for (int64_t i = first; i < first + count; ++i) {
      const float unit = largest > 0 ? magnitudes[static_cast<size_t>(i)] / largest : 0;
      packed[layout.inner + i] = Nearest(OuterValues(), unit);
    }
  }
}

}  // namespace

int64_t Nf4Bytes(int64_t values) { return Nf4Layout(values).bytes; }

at::Tensor QuantizeNf4(const at::Tensor& matrix) {
  const int64_t count = matrix.numel();
  const Nf4Layout layout(count);
  const at::Tensor packed = at::zeros({layout.bytes}, at::kByte);
  auto* bytes = packed.data_ptr<uint8_t>();
  const float* values = matrix.data_ptr<float>();
  std::vector<float> magnitudes;
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t end = std::min(count, first + kBlock);
    const float largest = LargestMagnitude(values + first, end - first);
    magnitudes.push_back(largest);
    for (int64_t i = first; i < end; ++i) {
      const uint8_t code = Nearest(kValues, largest > 0 ? values[i] / largest : 0);
      bytes[layout.codes + i / 2] |= static_cast<uint8_t>(i % 2 == 0 ? code << 4 : code);
    }
  }
  QuantizeMagnitudes(std::move(magnitudes), layout, bytes);
  return packed;
}

at::Tensor DequantizeNf4(const at::Tensor& packed, int64_t values, int64_t first, int64_t count) {
  if (!packed.is_cpu()) return DequantizeNf4ByTensors(packed, values, first, count);
  const Nf4Layout layout(values);
  const auto* bytes = packed.data_ptr<uint8_t>();
  const auto* head = reinterpret_cast<const float*>(bytes);
  const at::Tensor out = at::empty({count}, at::kFloat);
  ForRanges(count, RowGrain(1), [&](int64_t begin, int64_t range_end) {
    float* next = out.data_ptr<float>() + begin;
    for (int64_t i = first + begin; i < first + range_end;) {
      const int64_t block = i / kBlock;
      const float magnitude =
          OuterValues()[bytes[layout.inner + block]] * head[1 + block / kOuterBlock] + head[0];
      const int64_t end = std::min(first + range_end, (block + 1) * kBlock);
      for (; i < end; ++i) {
        const uint8_t pair = bytes[layout.codes + i / 2];
        *next++ = kValues[i % 2 == 0 ? pair >> 4 : pair & 15] * magnitude;
      }
    }
  });
  return out;
}

at::Tensor DequantizeNf4ByTensors(const at::Tensor& packed, int64_t values, int64_t first,
                                  int64_t count) {
  const Nf4Layout layout(values);
  const auto table = [&](const float* list, int64_t size) {
    return at::from_blob(const_cast<float*>(list), {size}, at::kFloat).to(packed.device());
  };
  const at::Tensor head = packed.narrow(0, 0, layout.inner).view(at::kFloat);
  const at::Tensor block = at::arange(first / kBlock, (first + count - 1) / kBlock + 1,
                                      at::TensorOptions(at::kLong).device(packed.device()));
  const at::Tensor inner = packed.narrow(0, layout.inner, layout.blocks).index_select(0, block);
  const at::Tensor magnitude =
      table(OuterValues().data(), 256)
          .index_select(0, inner.to(at::kInt))
          .mul_(head.index_select(0, block.floor_divide(kOuterBlock).add_(1)))
          .add_(head[0]);
  const int64_t first_byte = layout.codes + first / 2;
  const at::Tensor pairs =
      packed.narrow(0, first_byte, layout.codes + (first + count + 1) / 2 - first_byte);
  const at::Tensor codes =
      at::stack({pairs.bitwise_right_shift(4), pairs.bitwise_and(15)}, 1).view({-1});
  const at::Tensor unit =
      table(kValues.data(), 16).index_select(0, codes.narrow(0, first % 2, count).to(at::kInt));
  if (first % kBlock == 0 && count % kBlock == 0) {
    return unit.view({-1, kBlock}).mul(magnitude.unsqueeze(1)).view({-1});
  }
  const at::Tensor place = at::arange(first % kBlock, first % kBlock + count, block.options());
  return unit.mul(magnitude.index_select(0, place.floor_divide(kBlock)));
}

}  // namespace gpuctl::trainer
