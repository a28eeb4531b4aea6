#include "trainer/interchange/numbers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace gpuctl::trainer {
namespace {

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Writes blocks of a scale and 32 whole numbers.
bool WriteQ8(const float* from, size_t count, uint8_t* into) {
  for (size_t at = 0; at < count; at += kQ8Values, into += kQ8Bytes) {
    float largest = 0;
    bool finite = true;
    for (size_t i = 0; i < kQ8Values; ++i) {
      const float size = std::fabs(from[at + i]);
      finite &= size <= 3.4028235e38f;
      largest = std::max(largest, size);
    }
    const float scale = largest / 127.0f;
    const uint16_t half = FloatToHalf(scale);
    if (!finite || (half & 0x7c00) == 0x7c00) return false;
    std::memcpy(into, &half, sizeof(half));
    const float inverse = scale == 0 ? 0.0f : 1.0f / scale;
    for (size_t i = 0; i < kQ8Values; ++i) {
      const float rounded = std::round(from[at + i] * inverse);
      into[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(std::clamp(rounded, -127.0f, 127.0f)));
    }
  }
  return true;
}

}  // namespace

float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t rest = half & 0x7fff;
  if (rest >= 0x7c00) return FloatOf(sign | 0x7f800000 | ((rest & 0x3ff) << 13));
  if (rest >= 0x0400) return FloatOf(sign | ((rest << 13) + (112u << 23)));
  // Below the smallest normal number: a multiple of 2^-24.
  const float value = static_cast<float>(rest) * 5.9604644775390625e-8f;
  return FloatOf(sign | BitsOf(value));
}

uint16_t FloatToHalf(float value) {
  const uint32_t bits = BitsOf(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);  // not a number
  if (rest >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  if (rest < 0x38800000) {
    // The sum has 2^-24 as the unit in its last place, so the processor rounds.
    const float sum = FloatOf(rest) + 0.5f;
    return static_cast<uint16_t>(sign | (BitsOf(sum) - 0x3f000000));
  }
  const uint32_t odd = (rest >> 13) & 1;
  return static_cast<uint16_t>(sign | ((rest - (112u << 23) + 0xfff + odd) >> 13));
}

float BfloatToFloat(uint16_t bfloat) { return FloatOf(static_cast<uint32_t>(bfloat) << 16); }

uint16_t FloatToBfloat(float value) {
  const uint32_t bits = BitsOf(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

NumberType TypeOfDtype(const std::string& dtype) {
  if (dtype == "F32") return NumberType::kF32;
  if (dtype == "F16") return NumberType::kF16;
  if (dtype == "BF16") return NumberType::kBf16;
  throw std::invalid_argument("type of numbers: " + dtype);
}

uint64_t BytesOf(NumberType type, uint64_t count) {
  if (type == NumberType::kQ8_0) return count / kQ8Values * kQ8Bytes;
  return count * (type == NumberType::kF32 ? 4 : 2);
}

void ToFloats(NumberType type, const void* from, size_t count, float* into) {
  if (type == NumberType::kF32) {
    std::memcpy(into, from, count * sizeof(float));
    return;
  }
  const char* bytes = static_cast<const char*>(from);
  for (size_t i = 0; i < count; ++i) {
    uint16_t word;
    std::memcpy(&word, bytes + 2 * i, sizeof(word));
    into[i] = type == NumberType::kF16 ? HalfToFloat(word) : BfloatToFloat(word);
  }
}

bool FromFloats(NumberType type, const float* from, size_t count, void* into) {
  if (type == NumberType::kF32) {
    std::memcpy(into, from, count * sizeof(float));
    return true;
  }
  if (type == NumberType::kQ8_0) return WriteQ8(from, count, static_cast<uint8_t*>(into));
  const uint16_t infinite = type == NumberType::kF16 ? 0x7c00 : 0x7f80;
  char* bytes = static_cast<char*>(into);
  bool fits = true;
  for (size_t i = 0; i < count; ++i) {
    const uint16_t word = type == NumberType::kF16 ? FloatToHalf(from[i]) : FloatToBfloat(from[i]);
    fits &= (word & 0x7fff) != infinite || std::isinf(from[i]);
    std::memcpy(bytes + 2 * i, &word, sizeof(word));
  }
  return fits;
}

}  // namespace gpuctl::trainer
