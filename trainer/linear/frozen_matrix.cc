#include "trainer/linear/frozen_matrix.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/parallel.h"
#include "trainer/cpu/sgemm.h"
#include "trainer/linear/matmul.h"
#include "trainer/linear/nf4.h"
#include "trainer/linear/threads.h"
#include "trainer/linear/widths.h"

namespace gpuctl::trainer {
namespace {

// Values that are dense at a time. In fp32 1 MiB, which stays in a core's cache; an accelerator
// needs larger pieces to be busy.
constexpr int64_t kPieceValues = 1 << 18;
constexpr int64_t kPieceOnDevice = 1 << 24;

using cpu::kPanelColumns;
using cpu::kStripRows;

// Multiplications of a piece of a product with strips.
constexpr int64_t kStripsWork = 16 << 20;
constexpr int64_t kPiecesOfThread = 4;

// Returns x^T in panels of `deep` rows. Row `first` is the first one of x^T; those before it, and
// after its last one, are 0.
at::Tensor PanelsOf(const at::Tensor& x_nk, int64_t first, int64_t deep) {
  const int64_t n = x_nk.size(0), k = x_nk.size(1), wide = cpu::PanelColumns(n);
  const bool padded = deep > k;
  const at::Tensor panels =
      padded ? at::zeros({deep * wide}, x_nk.options()) : at::empty({deep * wide}, x_nk.options());
  const at::Tensor x = x_nk.stride(0) == 1 || x_nk.stride(1) == 1 ? x_nk : x_nk.contiguous();
  const float* const from = x.data_ptr<float>();
  float* const to = panels.data_ptr<float>();
  ForRanges(wide / kPanelColumns, RowGrain(kPanelColumns * k), [&](int64_t begin, int64_t end) {
    for (int64_t j = begin * kPanelColumns; j < end * kPanelColumns; j += kPanelColumns) {
      cpu::CopyToPanels(k, std::min(kPanelColumns, n - j),
                        {from + j * x.stride(0), x.stride(1), x.stride(0)},
                        to + j * deep + first * kPanelColumns);
    }
  });
  return panels;
}

// Calls work(begin, end) for pieces of [0, count), which begin with a strip. A piece decides no
// bit.
void ForStrips(int64_t count, int64_t multiplications,
               const std::function<void(int64_t, int64_t)>& work) {
  const int64_t most = kPiecesOfThread * SharingThreads();
  const int64_t strips = (count + kStripRows - 1) / kStripRows;
  const int64_t pieces =
      std::clamp<int64_t>(std::min(most, multiplications / kStripsWork), 1, strips);
  const auto begin = [&](int64_t piece) {
    return std::min(count, strips * piece / pieces * kStripRows);
  };
  ForPieces(pieces, [&](int64_t piece) { work(begin(piece), begin(piece + 1)); });
}

}  // namespace

bool FrozenMatrix::GainsByStrips(const at::Tensor& dense) {
  return MatMulLibrary() == "avx2" && dense.dim() == 2 && UsesCpuKernels(dense) &&
         dense.is_contiguous();
}

at::Tensor FrozenMatrix::PutInStrips(const at::Tensor& dense_cd) {
  TORCH_CHECK(UsesCpuKernels(dense_cd) && dense_cd.dim() == 2 && dense_cd.is_contiguous(),
              "strips: not a dense fp32 matrix on the CPU");
  const int64_t rows = dense_cd.size(0), columns = dense_cd.size(1);
  float* const data = dense_cd.data_ptr<float>();
  ForRangesOnCores(rows / kStripRows, std::max<int64_t>(1, kPieceValues / (kStripRows * columns)),
                   [&](int64_t begin, int64_t end) {
                     cpu::PutInStrips((end - begin) * kStripRows, columns,
                                      data + begin * kStripRows * columns);
                   });
  return dense_cd.view({-1});
}

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
  if (IsInStrips(stored_)) return stored_.numel() / columns_;
  return parts_.empty() ? stored_.size(0) : parts_.back().first_row + parts_.back().rows;
}

cpu::StripsView FrozenMatrix::Strips() const {
  return {stored_.data_ptr<float>(), rows(), columns_};
}

at::Tensor FrozenMatrix::Rows(const at::Tensor& index_n) const {
  TORCH_CHECK(IsInStrips(stored_), "rows of a matrix that is not in strips");
  const at::Tensor index = index_n.contiguous();
  const at::Tensor rows_nd = at::empty({index.numel(), columns_}, stored_.options());
  for (int64_t i = 0; i < index.numel(); ++i) {
    const int64_t row = index.data_ptr<int64_t>()[i];
    TORCH_CHECK_INDEX(row >= 0 && row < rows(), "strips: row ", row, " of ", rows());
    cpu::CopyRow(Strips(), row, rows_nd.data_ptr<float>() + i * columns_);
  }
  return rows_nd;
}

void FrozenMatrix::ForEachPiece(
    int64_t first_row, int64_t rows, at::ScalarType dtype,
    const std::function<void(const at::Tensor&, int64_t)>& visit) const {
  const int64_t values = stored_.is_cpu() ? kPieceValues : kPieceOnDevice;
  const int64_t most = std::max<int64_t>(1, values / columns_);
  if (IsInStrips(stored_)) {
    for (int64_t row = 0; row < rows; row += most) {
      const int64_t end = std::min(row + most, rows);
      visit(Rows(at::arange(first_row + row, first_row + end, at::kLong)).to(dtype), row);
    }
    return;
  }
  if (parts_.empty()) return visit(stored_.narrow(0, first_row, rows), 0);
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

void FrozenMatrix::TimesTransposedStrips(const at::Tensor& x_nd, int64_t first_row, int64_t rows,
                                         bool add, const at::Tensor& out_nc) const {
  for (int64_t n = 0; n < x_nd.size(0); n += cpu::kStripsColumns) {
    const int64_t count = std::min(cpu::kStripsColumns, x_nd.size(0) - n);
    const at::Tensor panels = PanelsOf(x_nd.narrow(0, n, count), 0, columns_);
    const float* const x = panels.data_ptr<float>();
    float* const out = out_nc.data_ptr<float>() + n * out_nc.stride(0);
    // Pieces end with strips of the matrix.
    const int64_t before = first_row % kStripRows;
    ForStrips(before + rows, count * rows * columns_, [&](int64_t begin, int64_t end) {
      begin = std::max(begin - before, int64_t{0});
      end -= before;
      cpu::TimesTransposedStrips(Strips(), first_row + begin, first_row + end, count, x, add,
                                 out + begin, out_nc.stride(0));
    });
  }
}

void FrozenMatrix::TimesStrips(const at::Tensor& y_nc, int64_t first_row, int64_t rows, bool add,
                               const at::Tensor& out_nd) const {
  // Whole strips; the factors of rows that are not meant are 0.
  const int64_t before = first_row % kStripRows, first = first_row - before;
  const int64_t strips = (before + rows + kStripRows - 1) / kStripRows;
  const int64_t deep = std::min(strips * kStripRows, this->rows() - first);
  for (int64_t n = 0; n < y_nc.size(0); n += cpu::kStripsColumns) {
    const int64_t count = std::min(cpu::kStripsColumns, y_nc.size(0) - n);
    const at::Tensor panels = PanelsOf(y_nc.narrow(0, n, count), before, deep);
    const float* const y = panels.data_ptr<float>();
    float* const out = out_nd.data_ptr<float>() + n * out_nd.stride(0);
    ForStrips(columns_, count * deep * columns_, [&](int64_t begin, int64_t end) {
      cpu::TimesStrips(Strips(), first, deep, begin, end, count, y, add, out + begin,
                       out_nd.stride(0));
    });
  }
}

void FrozenMatrix::TimesTransposed(const at::Tensor& x_nd, int64_t first_row, int64_t rows,
                                   bool add, const at::Tensor& out_nc) const {
  if (IsInStrips(stored_)) return TimesTransposedStrips(x_nd, first_row, rows, add, out_nc);
  ForEachPiece(first_row, rows, x_nd.scalar_type(), [&](const at::Tensor& piece_rd, int64_t row) {
    MatMulInto(x_nd, piece_rd.t(), add, out_nc.narrow(1, row, piece_rd.size(0)));
  });
}

void FrozenMatrix::Times(const at::Tensor& y_nc, int64_t first_row, int64_t rows, bool add,
                         const at::Tensor& out_nd) const {
  if (IsInStrips(stored_)) return TimesStrips(y_nc, first_row, rows, add, out_nd);
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
