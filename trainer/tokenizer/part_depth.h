// How deeply the parts of a tokenizer.json may lie within each other.

#ifndef TRAINER_TOKENIZER_PART_DEPTH_H_
#define TRAINER_TOKENIZER_PART_DEPTH_H_

namespace gpuctl::trainer {

// Sequences in a Sequence.
constexpr int kMaxPartDepth = 8;

}  // namespace gpuctl::trainer

#endif  // TRAINER_TOKENIZER_PART_DEPTH_H_
