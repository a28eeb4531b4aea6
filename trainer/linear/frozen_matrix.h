// A matrix of the model that is not trained. It is stored dense; or in strips, the form that
// products on the CPU read without a copy (cpu/sgemm.h); or in 4 bits a weight. Products of the
// last form make a few rows dense at a time, so that the whole matrix never exists.

#ifndef TRAINER_LINEAR_FROZEN_MATRIX_H_
#define TRAINER_LINEAR_FROZEN_MATRIX_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainer/cpu/sgemm.h"

namespace gpuctl::trainer {

// Shapes: N rows of the other factor, D columns and C rows of the matrix.
class FrozenMatrix {
 public:
  FrozenMatrix() = default;
  // `stored` is dense, or what PutInStrips has returned.
  FrozenMatrix(const at::Tensor& stored, int64_t columns) : stored_(stored), columns_(columns) {}
  // `packed` has quantized parts one behind the other; each is of that many rows.
  FrozenMatrix(const at::Tensor& packed, const std::vector<int64_t>& part_rows, int64_t columns);

  // Returns the packed form of a dense, contiguous fp32 matrix on the CPU. Throws Error(kBadData)
  // that names it when a value is not finite.
  static at::Tensor Pack(const at::Tensor& dense_cd, const std::vector<int64_t>& part_rows,
                         const std::string& name);

  // Whether this is a matrix whose products take less time in strips.
  static bool GainsByStrips(const at::Tensor& dense);
  // Puts a dense, contiguous fp32 matrix on the CPU in strips, and returns the same memory as a
  // tensor of one dimension, so that nobody takes it for a dense one; `dense_cd` is none any more.
  static at::Tensor PutInStrips(const at::Tensor& dense_cd);
  static bool IsInStrips(const at::Tensor& stored) {
    return stored.dim() == 1 && !IsPacked(stored);
  }

  int64_t rows() const;

  // Computes out [N, rows] = x [N, D] W^T, or out += that, for some rows of W.
  void TimesTransposed(const at::Tensor& x_nd, int64_t first_row, int64_t rows, bool add,
                       const at::Tensor& out_nc) const;
  // Computes out [N, D] = y [N, rows] W, or out += that.
  void Times(const at::Tensor& y_nc, int64_t first_row, int64_t rows, bool add,
             const at::Tensor& out_nd) const;
  // Returns some rows, as at::embedding does it for int64 indices. In strips only.
  at::Tensor Rows(const at::Tensor& index_n) const;
  // Returns the length of each of the rows, fp32 (or fp64).
  at::Tensor RowLengths(int64_t first_row, int64_t rows) const;

 private:
  // Calls visit(dense [r, D], its first row less first_row) for the rows, piece by piece.
  void ForEachPiece(int64_t first_row, int64_t rows, at::ScalarType dtype,
                    const std::function<void(const at::Tensor&, int64_t)>& visit) const;

  cpu::StripsView Strips() const;
  void TimesTransposedStrips(const at::Tensor& x_nd, int64_t first_row, int64_t rows, bool add,
                             const at::Tensor& out_nc) const;
  void TimesStrips(const at::Tensor& y_nc, int64_t first_row, int64_t rows, bool add,
                   const at::Tensor& out_nd) const;

  struct Part {
    int64_t first_row;
    int64_t rows;
    int64_t first_byte;
  };
  static bool IsPacked(const at::Tensor& stored) { return stored.scalar_type() == at::kByte; }

  at::Tensor stored_;        // dense [C, D], in strips [C D], or uint8
  std::vector<Part> parts_;  // of the packed form
  int64_t columns_ = 0;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_LINEAR_FROZEN_MATRIX_H_
