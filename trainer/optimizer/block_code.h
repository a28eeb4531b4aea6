// Numbers in 8 bits, for AdamW's moments: blocks of 256 of them share their largest magnitude in
// fp32, and each is the nearest of 256 values of a fixed list, times that magnitude ("8-bit
// Optimizers via Block-wise Quantization", Dettmers et al., arXiv 2110.02861, with the lists of the
// bitsandbytes library). The list is dynamic: for each power of ten down to 1e-6 it has half as
// many values as for the one above, in equal steps, so that small numbers keep their order of
// magnitude.

#ifndef TRAINER_OPTIMIZER_BLOCK_CODE_H_
#define TRAINER_OPTIMIZER_BLOCK_CODE_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace gpuctl::trainer {

constexpr int64_t kCodeBlock = 256;

// What is encoded. kSquare is for numbers that are not negative; only 0 becomes 0 then: a divisor
// that vanishes beside a numerator that does not would be a huge update.
enum class CodeKind { kMean, kSquare };

// Returns the values of the codes, ascending.
const std::array<float, 256>& CodeValues(CodeKind kind);

// Returns how many blocks `count` numbers are.
inline int64_t CodeBlocks(int64_t count) { return (count + kCodeBlock - 1) / kCodeBlock; }

// Encodes one block of up to kCodeBlock finite numbers, and decodes it. A number in the middle
// between two values becomes the one nearer to 0. Safe on any thread.
void EncodeBlock(CodeKind kind, int64_t count, const float* numbers, uint8_t* codes,
                 float* largest);
void DecodeBlock(CodeKind kind, int64_t count, const uint8_t* codes, float largest, float* numbers);

// Do the same for contiguous tensors of whole blocks and perhaps one shorter block at the end, all
// on one device: numbers fp32 [count], codes uint8 [count], largest fp32 [CodeBlocks(count)]. Those
// off the CPU use memory for some copies of `numbers`. The results are the same to the last bit.
void Encode(CodeKind kind, const at::Tensor& numbers, const at::Tensor& codes,
            const at::Tensor& largest);
void Decode(CodeKind kind, const at::Tensor& codes, const at::Tensor& largest,
            const at::Tensor& numbers);
// With operations on tensors, as devices other than the CPU need it.
void EncodeByTensors(CodeKind kind, const at::Tensor& numbers, const at::Tensor& codes,
                     const at::Tensor& largest);
void DecodeByTensors(CodeKind kind, const at::Tensor& codes, const at::Tensor& largest,
                     const at::Tensor& numbers);

}  // namespace gpuctl::trainer

#endif  // TRAINER_OPTIMIZER_BLOCK_CODE_H_
