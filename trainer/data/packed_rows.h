// Packs rows of tokens into windows: several rows in one window, one behind another, each with its
// own positions and seen by itself alone.

#ifndef TRAINER_DATA_PACKED_ROWS_H_
#define TRAINER_DATA_PACKED_ROWS_H_

#include <cstdint>
#include <vector>

#include "trainer/data/prepared.h"
#include "trainer/data/windows.h"

namespace gpuctl::trainer {

// Immutable and thread-safe. Needs 8 bytes for each row, and 8 for each window.
class PackedRows {
 public:
  // A row of n tokens takes n - 1 places of a window of `context`: each but the last is an input,
  // each but the first can be a target. A longer row loses its end. With `pack`, rows go, from the
  // longest to the shortest, into the fullest window that has room for them (best fit decreasing);
  // among rows of one length, `seed` decides. Else each row has a window of its own. `rows` must
  // outlive the object.
  PackedRows(const TokenRows& rows, int64_t context, bool pack, uint64_t seed);

  const TokenRows& rows() const { return rows_; }
  int64_t windows() const { return static_cast<int64_t>(ends_.size()); }
  int64_t truncated_rows() const { return truncated_rows_; }
  // Whether any token that is a target in a window is learned. Reads rows up to the first such one.
  bool HasLearned() const;
  // Returns a row without one, or -1. Reads all rows.
  int64_t RowWithoutLearned() const;
  // Returns how many places of all windows hold a row.
  int64_t filled() const { return filled_; }

  // Writes one window; places without a row get id 0 and no target. Returns how many targets are
  // scored. Throws Error(kBadData) for an id of `vocabulary` or more.
  int64_t Fill(int64_t window, int64_t vocabulary, const WindowSlot& slot) const;

 private:
  int64_t Places(int64_t row) const;
  bool Learns(int64_t row) const;

  const TokenRows& rows_;
  int64_t context_;
  std::vector<int64_t> order_;  // the rows, window by window
  std::vector<int64_t> ends_;   // of each window, in order_
  int64_t truncated_rows_ = 0;
  int64_t filled_ = 0;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_DATA_PACKED_ROWS_H_
