// The product that an adapter adds to a matrix. Pure functions on rows, for all cores.

#ifndef TRAINER_ADAPTERS_LOW_RANK_H_
#define TRAINER_ADAPTERS_LOW_RANK_H_

#include <cstdint>

namespace gpuctl::trainer {

// Adds scale B A to `w`, in fp32: w [rows, columns], b [rows, rank], a [rank, columns].
void AddLowRank(const float* b, const float* a, int64_t rows, int64_t rank, int64_t columns,
                float scale, float* w);

// Gives each row of w [rows, columns] the length of its magnitude; a row of zeros stays one.
void SetLengths(const float* magnitudes, int64_t rows, int64_t columns, float* w);

}  // namespace gpuctl::trainer

#endif  // TRAINER_ADAPTERS_LOW_RANK_H_
