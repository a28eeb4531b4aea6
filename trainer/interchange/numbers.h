// Numbers of 16 and 8 bits, as files of models have them. All functions are pure.
//
// Sources: IEEE 754-2019 binary16; bfloat16 is the upper half of a binary32; Q8_0 is the block of
// ggml (ggml-common.h, quantize_row_q8_0): 32 values share one scale in binary16.

#ifndef TRAINER_INTERCHANGE_NUMBERS_H_
#define TRAINER_INTERCHANGE_NUMBERS_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace gpuctl::trainer {

float HalfToFloat(uint16_t half);
// Rounds to the nearest, ties to even. What is too large becomes infinite.
uint16_t FloatToHalf(float value);
float BfloatToFloat(uint16_t bfloat);
uint16_t FloatToBfloat(float value);

// How the numbers of a tensor lie in a file.
enum class NumberType { kF32, kF16, kBf16, kQ8_0 };

constexpr size_t kQ8Values = 32;
constexpr size_t kQ8Bytes = 34;

// Returns the type of a dtype of safetensors. F32, F16 and BF16 have one; others throw
// std::invalid_argument.
NumberType TypeOfDtype(const std::string& dtype);
// Returns the bytes of `count` numbers; of Q8_0, `count` must be a multiple of 32.
uint64_t BytesOf(NumberType type, uint64_t count);

// Reads `count` numbers of F32, F16 or BF16.
void ToFloats(NumberType type, const void* from, size_t count, float* into);
// Writes `count` numbers. Returns false when one is finite in `from` and infinite in the file, or,
// for Q8_0, when one is not finite.
bool FromFloats(NumberType type, const float* from, size_t count, void* into);

}  // namespace gpuctl::trainer

#endif  // TRAINER_INTERCHANGE_NUMBERS_H_
