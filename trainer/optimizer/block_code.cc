#include "trainer/optimizer/block_code.h"

#include <ATen/ops/bucketize.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "trainer/base/vectors.h"

namespace gpuctl::trainer {
namespace {

constexpr int kDecades = 7;     // 1e-6 … 1
constexpr uint8_t kZero = 127;  // the code of 0 of CodeKind::kMean; below it lie the negative ones
constexpr int kStepShift = 16;  // steps of the search table: floats that have these low bits
constexpr int kFirstStep = 0x3400;               // of 2^-23; all smaller ones become 0
constexpr int kSteps = 0x3f80 - kFirstStep + 1;  // the last one is that of 1

// The magnitudes of a list and what encoding needs: the nearest one of a number by one look into a
// table and one comparison.
struct Magnitudes {
  explicit Magnitudes(int first_count);

  std::vector<float> values = {0.0f};  // ascending, to 1
  // middles[i] is the largest fp32 number not above the middle of values[i] and the next one.
  std::array<float, 256> middles;
  // The nearest value of a step's first number. No step has two middles.
  std::array<int32_t, kSteps> nearest;
};

Magnitudes::Magnitudes(int first_count) {
  for (int decade = 0; decade < kDecades; ++decade) {
    const int count = first_count << decade;
    const double power = std::pow(10.0, decade - (kDecades - 1));
    for (int i = 0; i < count; ++i) {
      values.push_back(static_cast<float>(power * (0.1 + 0.9 * (i + 0.5) / count)));
    }
  }
  values.push_back(1.0f);
  middles.fill(2.0f);
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    const double middle = (static_cast<double>(values[i]) + static_cast<double>(values[i + 1])) / 2;
    middles[i] = static_cast<float>(middle);
    if (static_cast<double>(middles[i]) > middle) middles[i] = std::nextafter(middles[i], 0.0f);
  }
  for (int step = 0; step < kSteps; ++step) {
    const uint32_t bits = static_cast<uint32_t>(kFirstStep + step) << kStepShift;
    float first = 0;
    std::memcpy(&first, &bits, sizeof(first));
    const auto above = std::lower_bound(middles.begin(), middles.end(), first);
    nearest[static_cast<size_t>(step)] = static_cast<int32_t>(above - middles.begin());
  }
}

const Magnitudes& MagnitudesOf(CodeKind kind) {
  static const Magnitudes mean(1), square(2);
  return kind == CodeKind::kMean ? mean : square;
}

std::array<float, 256> MakeValues(CodeKind kind) {
  const std::vector<float>& magnitudes = MagnitudesOf(kind).values;
  std::array<float, 256> values;
  if (kind == CodeKind::kSquare) {
    std::copy(magnitudes.begin(), magnitudes.end(), values.begin());
    return values;
  }
  // 1 has no negative one.
  for (size_t code = 0; code < values.size(); ++code) {
    values[code] = code < kZero ? -magnitudes[kZero - code] : magnitudes[code - kZero];
  }
  return values;
}

TRAINER_WIDEST_VECTORS
float LargestOf(int64_t count, const float* numbers) {
  uint32_t largest = 0;  // magnitudes are in the order of their bits
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, numbers + i, sizeof(bits));
    largest = std::max(largest, bits & 0x7fffffff);
  }
  float magnitude;
  std::memcpy(&magnitude, &largest, sizeof(magnitude));
  return magnitude;
}

// Writes the index of the nearest magnitude of each number.
TRAINER_WIDEST_VECTORS
void NearestOf(const Magnitudes& magnitudes, int64_t count, const float* __restrict numbers,
               float divisor, int32_t* __restrict indices) {
  const int32_t* __restrict nearest = magnitudes.nearest.data();
  const float* __restrict middles = magnitudes.middles.data();
  for (int64_t i = 0; i < count; ++i) {
    const float unit = std::fabs(numbers[i]) / divisor;
    int32_t bits;
    std::memcpy(&bits, &unit, sizeof(bits));
    const int32_t step = std::min(std::max((bits >> kStepShift) - kFirstStep, 0), kSteps - 1);
    const int32_t index = nearest[step];
    indices[i] = index + (unit > middles[index] ? 1 : 0);
  }
}

TRAINER_WIDEST_VECTORS
void WriteMeans(int64_t count, const float* __restrict numbers, const int32_t* __restrict indices,
                uint8_t* __restrict codes) {
  for (int64_t i = 0; i < count; ++i) {
    const int32_t below = kZero - std::min<int32_t>(indices[i], kZero);
    codes[i] = static_cast<uint8_t>(numbers[i] < 0 ? below : kZero + indices[i]);
  }
}

TRAINER_WIDEST_VECTORS
void WriteSquares(int64_t count, const float* __restrict numbers, const int32_t* __restrict indices,
                  uint8_t* __restrict codes) {
  for (int64_t i = 0; i < count; ++i) {
    codes[i] = static_cast<uint8_t>(std::max<int32_t>(indices[i], numbers[i] > 0 ? 1 : 0));
  }
}

TRAINER_WIDEST_VECTORS
void Multiply(const float* __restrict values, int64_t count, const uint8_t* __restrict codes,
              float largest, float* __restrict numbers) {
  for (int64_t i = 0; i < count; ++i) numbers[i] = values[codes[i]] * largest;
}

// Returns numbers as [blocks, kCodeBlock], the last one with zeros behind it.
at::Tensor InBlocks(const at::Tensor& numbers) {
  const int64_t missing = CodeBlocks(numbers.numel()) * kCodeBlock - numbers.numel();
  const at::Tensor whole =
      missing == 0 ? numbers : at::constant_pad_nd(numbers, {0, missing}, at::Scalar(0));
  return whole.view({-1, kCodeBlock});
}

at::Tensor ListOn(const at::Tensor& like, const float* list, size_t size) {
  return at::from_blob(const_cast<float*>(list), {static_cast<int64_t>(size)}, at::kFloat)
      .to(like.device());
}

}  // namespace

const std::array<float, 256>& CodeValues(CodeKind kind) {
  static const std::array<float, 256> mean = MakeValues(CodeKind::kMean);
  static const std::array<float, 256> square = MakeValues(CodeKind::kSquare);
  return kind == CodeKind::kMean ? mean : square;
}

void EncodeBlock(CodeKind kind, int64_t count, const float* numbers, uint8_t* codes,
                 float* largest) {
  *largest = LargestOf(count, numbers);
  int32_t indices[kCodeBlock];
  NearestOf(MagnitudesOf(kind), count, numbers, *largest > 0 ? *largest : 1, indices);
  if (kind == CodeKind::kMean) {
    WriteMeans(count, numbers, indices, codes);
  } else {
    WriteSquares(count, numbers, indices, codes);
  }
}

void DecodeBlock(CodeKind kind, int64_t count, const uint8_t* codes, float largest,
                 float* numbers) {
  Multiply(CodeValues(kind).data(), count, codes, largest, numbers);
}

void Encode(CodeKind kind, const at::Tensor& numbers, const at::Tensor& codes,
            const at::Tensor& largest) {
  if (!numbers.is_cpu()) return EncodeByTensors(kind, numbers, codes, largest);
  const int64_t count = numbers.numel();
  for (int64_t first = 0; first < count; first += kCodeBlock) {
    EncodeBlock(kind, std::min(kCodeBlock, count - first), numbers.data_ptr<float>() + first,
                codes.data_ptr<uint8_t>() + first, largest.data_ptr<float>() + first / kCodeBlock);
  }
}

void Decode(CodeKind kind, const at::Tensor& codes, const at::Tensor& largest,
            const at::Tensor& numbers) {
  if (!numbers.is_cpu()) return DecodeByTensors(kind, codes, largest, numbers);
  const int64_t count = numbers.numel();
  for (int64_t first = 0; first < count; first += kCodeBlock) {
    DecodeBlock(kind, std::min(kCodeBlock, count - first), codes.data_ptr<uint8_t>() + first,
                largest.data_ptr<float>()[first / kCodeBlock], numbers.data_ptr<float>() + first);
  }
}

void EncodeByTensors(CodeKind kind, const at::Tensor& numbers, const at::Tensor& codes,
                     const at::Tensor& largest) {
  const Magnitudes& magnitudes = MagnitudesOf(kind);
  const at::Tensor blocks = InBlocks(numbers), sizes = blocks.abs();
  largest.copy_(sizes.amax(1));
  const at::Tensor divisor = at::where(largest.gt(0), largest, largest.add(1));
  const at::Tensor middles =
      ListOn(numbers, magnitudes.middles.data(), magnitudes.values.size() - 1);
  at::Tensor index = at::bucketize(sizes.div(divisor.unsqueeze(1)), middles, /*out_int32=*/true);
  if (kind == CodeKind::kMean) {
    index = at::where(blocks.lt(0), index.clamp_max(kZero).neg(), index).add(kZero);
  } else {
    index = at::where(blocks.gt(0), index.clamp_min(1), index);
  }
  codes.copy_(index.view({-1}).narrow(0, 0, numbers.numel()));
}

void DecodeByTensors(CodeKind kind, const at::Tensor& codes, const at::Tensor& largest,
                     const at::Tensor& numbers) {
  const at::Tensor values = ListOn(numbers, CodeValues(kind).data(), 256);
  numbers.copy_(values.index_select(0, codes.to(at::kInt)));
  const int64_t whole = numbers.numel() / kCodeBlock;
  numbers.narrow(0, 0, whole * kCodeBlock)
      .view({whole, kCodeBlock})
      .mul_(largest.narrow(0, 0, whole).unsqueeze(1));
  const int64_t rest = numbers.numel() - whole * kCodeBlock;
  if (rest > 0) numbers.narrow(0, whole * kCodeBlock, rest).mul_(largest.narrow(0, whole, 1));
}

}  // namespace gpuctl::trainer
