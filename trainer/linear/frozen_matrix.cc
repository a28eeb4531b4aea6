#include "trainer/linear/frozen_matrix.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/linear/matmul.h"
#include "trainer/linear/nf4.h"
#include "trainer/linear/widths.h"

namespace gpuctl::trainer {
namespace {

// Values that are dense at a time. In fp32 1 MiB, which stays in a core's cache; an accelerator
// needs larger pieces to be busy.
constexpr int64_t kPieceValues = 1 << 18;
constexpr int64_t kPieceOnDevice = 1 << 24;

}  // namespace

FrozenMatrix::FrozenMatrix(const at::Tensor& packed, const std::vector<int64_t>& part_rows,
                           int64_t columns)
    : stored_(packed), columns_(columns) {
  int64_t row = 0, byte = 0;
  for (const int64_t rows : part_rows) {
    parts_.push_back({row, rows, byte});
    row += rows;
    byte += Nf4Bytes(rows * columns);
  }
}

at::Tensor FrozenMatrix::Pack(const at::Tensor& dense_cd, const std::vector<int64_t>& part_rows,
                              const std::string& name) {
  if (!dense_cd.isfinite().all().item<bool>()) {
    throw DataError("pack weights: " + name + " has a value that is not finite");
  }
  std::vector<at::Tensor> packed;
  int64_t row = 0;
  for (const int64_t rows : part_rows) {
    packed.push_back(QuantizeNf4(dense_cd.narrow(0, row, rows)));
    row += rows;
  }
  return at::cat(packed);
}

int64_t FrozenMatrix::rows() const {
  return parts_.empty() ? stored_.size(0) : parts_.back().first_row + parts_.back().rows;
}

void FrozenMatrix::ForEachPiece(
    int64_t first_row, int64_t rows, at::ScalarType dtype,
    const std::function<void(const at::Tensor&, int64_t)>& visit) const {
  if (parts_.empty()) return visit(stored_.narrow(0, first_row, rows), 0);
  const int64_t values = stored_.is_cpu() ? kPieceValues : kPieceOnDevice;
  const int64_t most = std::max<int64_t>(1, values / columns_);
  for (const Part& part : parts_) {
    const int64_t end = std::min(first_row + rows, part.first_row + part.rows);
    const at::Tensor packed = stored_.narrow(0, part.first_byte, Nf4Bytes(part.rows * columns_));
    for (int64_t row = std::max(first_row, part.first_row); row < end; row += most) {
      const int64_t count = std::min(most, end - row);
      const at::Tensor piece = DequantizeNf4(packed, part.rows * columns_,
                                             (row - part.first_row) * columns_, count * columns_);
      visit(piece.view({count, columns_}).to(dtype), row - first_row);
    }
  }
}

void FrozenMatrix::TimesTransposed(const at::Tensor& x_nd, int64_t first_row, int64_t rows,
                                   bool add, const at::Tensor& out_nc) const {
  ForEachPiece(first_row, rows, x_nd.scalar_type(), [&](const at::Tensor& piece_rd, int64_t row) {
    MatMulInto(x_nd, piece_rd.t(), add, out_nc.narrow(1, row, piece_rd.size(0)));
  });
}

void FrozenMatrix::Times(const at::Tensor& y_nc, int64_t first_row, int64_t rows, bool add,
                         const at::Tensor& out_nd) const {
  ForEachPiece(first_row, rows, y_nc.scalar_type(), [&](const at::Tensor& piece_rd, int64_t row) {
    MatMulInto(y_nc.narrow(1, row, piece_rd.size(0)), piece_rd, add || row > 0, out_nd);
  });
}

at::Tensor FrozenMatrix::RowLengths(int64_t first_row, int64_t rows) const {
  std::vector<at::Tensor> lengths;
  ForEachPiece(first_row, rows, at::kFloat, [&](const at::Tensor& piece_rd, int64_t) {
    lengths.push_back(at::linalg_vector_norm(Widen(piece_rd), 2, at::IntArrayRef({1})));
  });
  return at::cat(lengths);
}

}  // namespace gpuctl::trainer
