// Work on the pieces of one tensor: all cores compute, and what they made is written in order.

#ifndef TRAINER_INTERCHANGE_PIECES_H_
#define TRAINER_INTERCHANGE_PIECES_H_

#include <cstdint>
#include <functional>
#include <string>

namespace gpuctl::trainer {

// The bytes of numbers that one piece has at most, where one row has fewer.
constexpr uint64_t kPieceTarget = 4 << 20;

struct Piece {
  std::string bytes;  // what was made
  std::string read;   // what it was made of, where `write` needs it and it is something else
};

// Calls `make(first_row, rows, &piece)` for all rows of a tensor, by pieces of about kPieceTarget
// bytes of `row_bytes`, on several threads; and `write(piece)` in the order of the rows, on this
// thread. A piece has what was in it when `make` gets it again. Needs two pieces for each core. The
// first exception of `make` or `write` is thrown again, when all threads have ended.
void ForPieces(int64_t rows, uint64_t row_bytes,
               const std::function<void(int64_t, int64_t, Piece*)>& make,
               const std::function<void(const Piece&)>& write);

}  // namespace gpuctl::trainer

#endif  // TRAINER_INTERCHANGE_PIECES_H_
