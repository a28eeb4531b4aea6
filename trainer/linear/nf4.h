// Matrices in 4 bits a weight: NormalFloat 4 with double quantization (QLoRA, Dettmers et al.,
// arXiv 2305.14314), with the numbers of the bitsandbytes library.
//
// 64 values in a row of memory are a block: each is the nearest of 16 numbers, times the largest
// magnitude of the block. These magnitudes, less their mean, are quantized again: 256 of them are a
// block of 8-bit numbers of a fixed list, times their largest magnitude. Together 0.516 bytes a
// weight.

#ifndef TRAINER_LINEAR_NF4_H_
#define TRAINER_LINEAR_NF4_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace gpuctl::trainer {

// Returns the bytes of a quantized matrix with that many values; a multiple of 4.
int64_t Nf4Bytes(int64_t values);

// Quantizes a contiguous fp32 matrix on the CPU. Returns uint8 [Nf4Bytes]: fp32 mean of the
// magnitudes, fp32 magnitudes of the second step, bytes of the second step, then two values a byte,
// the first one in the high bits. All values
// must be finite.
at::Tensor QuantizeNf4(const at::Tensor& matrix);

// Returns the values [first, first + count) of a quantized matrix of `values` values, in fp32, on
// the device of `packed`.
at::Tensor DequantizeNf4(const at::Tensor& packed, int64_t values, int64_t first, int64_t count);
// Does the same with operations on tensors, as devices other than the CPU need it.
at::Tensor DequantizeNf4ByTensors(const at::Tensor& packed, int64_t values, int64_t first,
                                  int64_t count);

}  // namespace gpuctl::trainer

#endif  // TRAINER_LINEAR_NF4_H_
