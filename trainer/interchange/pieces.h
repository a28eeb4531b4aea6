// Work on the pieces of one tensor: all cores compute, and what they made is written in order.

#ifndef TRAINER_INTERCHANGE_PIECES_H_
#define TRAINER_INTERCHANGE_PIECES_H_

#include <cstdint>
#include <functional>
#include <string>

namespace gpuctl::trainer {

// The bytes of numbers that one piece has at most, where one row has fewer.
constexpr uint64_t kPieceTarget = 4 << 20;

// Calls `make(first_row, rows, &bytes)` for all rows of a tensor, by pieces of about kPieceTarget
// bytes of `row_bytes`, on several threads; and `write(bytes)` in the order of the rows, on this
// thread. Needs two pieces for each core. The first exception of `make` or `write` is thrown again,
// when all threads have ended.
void ForPieces(int64_t rows, uint64_t row_bytes,
               const std::function<void(int64_t, int64_t, std::string*)>& make,
               const std::function<void(const std::string&)>& write);

}  // namespace gpuctl::trainer

#endif  // TRAINER_INTERCHANGE_PIECES_H_
