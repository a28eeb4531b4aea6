// Products of fp32 matrices for x86 processors with AVX2 and FMA.
//
// The order of loops is BLIS's (Van Zee and van de Geijn, "BLIS: A Framework for Rapidly
// Instantiating BLAS Functionality", 2015). Two things make it fit for training: it copies factors
// that lie anyhow at the speed of memory, and an element of the result has the same bits in
// whatever piece of a product it is computed.

#ifndef TRAINER_CPU_SGEMM_H_
#define TRAINER_CPU_SGEMM_H_

#include <cstdint>

namespace gpuctl::trainer::cpu {

// Whether this processor can run the functions below; elsewhere they end the process.
bool HasSgemm();

// Element (i, j) is at data[i * down + j * across]; one of the two is 1.
struct MatrixView {
  const float* data;
  int64_t down;
  int64_t across;
};

// Computes c = a b, or c += a b, for a [m, k], b [k, n] and c [m, n], whose rows begin `down`
// elements apart. c must not overlap the others. Each element is a sum in the order of k, in blocks
// that follow from k alone. The calling thread works alone, and keeps 2 MB. Throws std::bad_alloc.
void Sgemm(int64_t m, int64_t n, int64_t k, const MatrixView& a, const MatrixView& b, bool add,
           float* c, int64_t down);

// A matrix in panels: element (i, j) of [rows, columns] is at [j / 16][i][j % 16]. The last panel
// is filled up. Panels must begin at a multiple of 64 bytes.
constexpr int64_t kPanelColumns = 16;
constexpr int64_t PanelColumns(int64_t columns) {
  return (columns + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
}
// Copies b [k, n] to panels, filled up with 0.
void CopyToPanels(int64_t k, int64_t n, const MatrixView& b, float* panels);
// Does the same as Sgemm for b [k, n] and c [m, n] in panels.
void MultiplyPanels(int64_t m, int64_t n, int64_t k, const MatrixView& a, const float* b, bool add,
                    float* c);

// A matrix in strips: each six rows lie as [columns, 6]; rows that are left over, fewer than six,
// lie as they are. Products of the matrix and of its transpose read it where it lies, so that a
// matrix that never changes is not copied anew for each of them.
constexpr int64_t kStripRows = 6;
struct StripsView {
  const float* data;
  int64_t rows;
  int64_t columns;
};
// Puts a matrix [rows, columns] in strips where it lies. Throws std::bad_alloc.
void PutInStrips(int64_t rows, int64_t columns, float* matrix);
void CopyRow(const StripsView& from, int64_t row, float* to);

// In what follows rows of `a` begin with a strip, and end with one or with the matrix; n is that of
// whole panels, and panels of b and y have as many rows as those of `a` that are taken, or as it
// has columns. Errors and threads are those of Sgemm.

// Computes c = a b for rows [first, first + m) of a; b and c are in panels.
void MultiplyStrips(const StripsView& a, int64_t first, int64_t m, int64_t n, const float* b,
                    float* c);
// Computes c += a^T b for rows [first, first + k) of a; b and c are in panels.
void AddTransposedStrips(const StripsView& a, int64_t first, int64_t k, int64_t n, const float* b,
                         float* c);

// The rows of a result, [n, ...], begin `down` elements apart. n is at most kStripsColumns here,
// and need not be that of whole panels.
constexpr int64_t kStripsColumns = 512;
// Computes out = x a^T, or out += that, for any rows [begin, end) of a; x^T is in panels.
void TimesTransposedStrips(const StripsView& a, int64_t begin, int64_t end, int64_t n,
                           const float* x, bool add, float* out, int64_t down);
// Computes columns [begin, end) of out = y a, or of out += that, for rows [first, first + k) of a;
// y^T is in panels. `out` is that of the column `begin`.
void TimesStrips(const StripsView& a, int64_t first, int64_t k, int64_t begin, int64_t end,
                 int64_t n, const float* y, bool add, float* out, int64_t down);

}  // namespace gpuctl::trainer::cpu

#endif  // TRAINER_CPU_SGEMM_H_
