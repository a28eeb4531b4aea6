// Legend: i and m rows of a and c, j and n columns of b and c, p and k depth.

#include "trainer/cpu/sgemm.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#define GPUCTL_AVX2 __attribute__((target("avx2,fma")))

namespace gpuctl::trainer::cpu {
namespace {

// A tile of c stays in 12 of the 16 registers while its sums grow.
constexpr int64_t kTileRows = 6;
constexpr int64_t kTileColumns = kPanelColumns;
constexpr auto kRowsOfTile = std::make_index_sequence<kTileRows>();

// The largest blocks of a, which the second-level cache holds, and of b. Depth is large because c
// is read and written once for each block of it.
constexpr int64_t kBlockRows = 8 * kTileRows;
constexpr int64_t kBlockColumns = 32 * kTileColumns;
constexpr int64_t kBlockDepth = 1024;

// For so many columns of c rows of a are not worth a copy.
constexpr int64_t kFewColumns = 2 * kTileColumns;

// For so few rows of c the product of the transposed matrices takes less time, where b lies in
// memory by columns.
constexpr int64_t kFewRows = 128;

// A line of the caches.
struct alignas(64) Line {
  float elements[16];
};

// A thread's copies of a block of a, in strips [k, kTileRows], and of one of b, in strips
// [k, kTileColumns].
struct Room {
  std::vector<Line> a = std::vector<Line>(kBlockRows * kBlockDepth / 16 + 1);
  std::vector<Line> b = std::vector<Line>(kBlockColumns * kBlockDepth / 16);
};

struct Factors {
  int64_t k;
  const float* a;
  int64_t a_down;
  const float* b;  // a strip
};

// Has the processor load a line of the caches, which may lie behind the end of a matrix. Rows of a
// large matrix are far from each other, so it does not foresee that they will be read. GCC takes a
// function that only does this for one without effect and drops calls of it: hence always inlined.
__attribute__((always_inline)) inline void LoadAhead(const float* from) {
  _mm_prefetch(from, _MM_HINT_T0);
}
constexpr int64_t kAhead = 24;  // columns that are on the way while others are copied

// Adds the products of one column of a and one row of b to a tile.
template <size_t... row>
GPUCTL_AVX2 __attribute__((always_inline)) inline void AddProducts(std::index_sequence<row...>,
                                                                   const float* upper,
                                                                   const float* lower,
                                                                   int64_t a_down, const float* b,
                                                                   __m256* left, __m256* right) {
  const __m256 b_left = _mm256_load_ps(b), b_right = _mm256_load_ps(b + 8);
  __m256 factor;
  ((factor =
        _mm256_broadcast_ss((row < kTileRows / 2 ? upper : lower) + row % (kTileRows / 2) * a_down),
    left[row] = _mm256_fmadd_ps(factor, b_left, left[row]),
    right[row] = _mm256_fmadd_ps(factor, b_right, right[row])),
   ...);
}

// Computes c = a b or c += a b for one tile. Elements of a row of a are `across` apart. Where GCC
// inlines it, the loop's sums do not all stay in registers.
template <int64_t across, size_t... row>
__attribute__((noinline)) GPUCTL_AVX2 void ComputeTile(std::index_sequence<row...> rows,
                                                       const Factors& of, bool add, float* c,
                                                       int64_t c_down) {
  __m256 left[] = {((void)row, _mm256_setzero_ps())...};
  __m256 right[] = {((void)row, _mm256_setzero_ps())...};
  // Two pointers, so that the processor can add the rows' distances itself.
  const int64_t a_down = across == 1 ? of.a_down : 1;
  const float *upper = of.a, *lower = of.a + kTileRows / 2 * a_down, *b = of.b;
  int64_t p = of.k;
  for (; p >= 4; p -= 4) {
    AddProducts(rows, upper, lower, a_down, b, left, right);
    AddProducts(rows, upper + across, lower + across, a_down, b + kTileColumns, left, right);
    AddProducts(rows, upper + 2 * across, lower + 2 * across, a_down, b + 2 * kTileColumns, left,
                right);
    AddProducts(rows, upper + 3 * across, lower + 3 * across, a_down, b + 3 * kTileColumns, left,
                right);
    upper += 4 * across;
    lower += 4 * across;
    b += 4 * kTileColumns;
  }
  for (; p > 0; --p, upper += across, lower += across, b += kTileColumns) {
    AddProducts(rows, upper, lower, a_down, b, left, right);
  }
  if (add) {
    ((left[row] = _mm256_add_ps(left[row], _mm256_loadu_ps(c + row * c_down)),
      right[row] = _mm256_add_ps(right[row], _mm256_loadu_ps(c + row * c_down + 8))),
     ...);
  }
  ((_mm256_storeu_ps(c + row * c_down, left[row]),
    _mm256_storeu_ps(c + row * c_down + 8, right[row])),
   ...);
}

// Transposes rows of eight elements; those that are absent are 0.
template <size_t... present>
GPUCTL_AVX2 __attribute__((always_inline)) inline void Transpose(std::index_sequence<present...>,
                                                                 const float* from, int64_t down,
                                                                 __m256* column) {
  const __m256 zero = _mm256_setzero_ps();
  __m256 row[8] = {zero, zero, zero, zero, zero, zero, zero, zero}, pair[8];
  ((row[present] = _mm256_loadu_ps(from + present * down)), ...);
  for (int i = 0; i < 8; i += 2) {
    pair[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
    pair[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    row[i] = _mm256_shuffle_ps(pair[i], pair[i + 2], _MM_SHUFFLE(1, 0, 1, 0));
    row[i + 1] = _mm256_shuffle_ps(pair[i], pair[i + 2], _MM_SHUFFLE(3, 2, 3, 2));
    row[i + 2] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], _MM_SHUFFLE(1, 0, 1, 0));
    row[i + 3] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], _MM_SHUFFLE(3, 2, 3, 2));
  }
  for (int i = 0; i < 4; ++i) {
    column[i] = _mm256_permute2f128_ps(row[i], row[i + 4], 0x20);
    column[i + 4] = _mm256_permute2f128_ps(row[i], row[i + 4], 0x31);
  }
}

GPUCTL_AVX2 inline void Transpose8(const float* from, int64_t from_down, float* to,
                                   int64_t to_down) {
  __m256 column[8];
  Transpose(std::make_index_sequence<8>(), from, from_down, column);
  for (int i = 0; i < 8; ++i) _mm256_storeu_ps(to + i * to_down, column[i]);
}

// Transposes kTileRows rows. Writes two elements behind the last column.
GPUCTL_AVX2 inline void TransposeStrip(const float* from, int64_t down, float* to) {
  __m256 column[8];
  Transpose(kRowsOfTile, from, down, column);
  for (int i = 0; i < 8; ++i) _mm256_storeu_ps(to + i * kTileRows, column[i]);
}

// Copies a block of a, [m, k], to strips [k, kTileRows]; rows that are absent become 0. Writes two
// elements behind the last strip.
GPUCTL_AVX2 void CopyStrips(const MatrixView& a, int64_t m, int64_t k, float* to) {
  const int64_t whole = m / kTileRows * kTileRows;
  if (a.across == 1) {
    for (int64_t first = 0; first < whole; first += kTileRows) {
      const float* const from = a.data + first * a.down;
      float* const strip = to + first * k;
      int64_t p = 0;
      for (; p + 8 <= k; p += 8) {
        for (int64_t i = kTileRows; p % 16 == 0 && i < 2 * kTileRows; ++i) {
          LoadAhead(from + i * a.down + p);
        }
        TransposeStrip(from + p, a.down, strip + p * kTileRows);
      }
      for (; p < k; ++p) {
        for (int64_t i = 0; i < kTileRows; ++i) strip[p * kTileRows + i] = from[i * a.down + p];
      }
    }
  } else {
    // Memory is read once: a strip gets eight columns before the next one does.
    for (int64_t begin = 0; begin < k; begin += 8) {
      const int64_t end = std::min(begin + 8, k);
      for (int64_t p = begin + kAhead; p < end + kAhead; ++p) {
        for (int64_t i = 0; i < m; i += 16) LoadAhead(a.data + i + p * a.across);
      }
      for (int64_t first = 0; first < whole; first += kTileRows) {
        for (int64_t p = begin; p < end; ++p) {
          std::memcpy(to + first * k + p * kTileRows, a.data + first + p * a.across,
                      kTileRows * sizeof(float));
        }
      }
    }
  }
  if (whole == m) return;
  for (int64_t p = 0; p < k; ++p) {
    for (int64_t i = 0; i < kTileRows; ++i) {
      to[whole * k + p * kTileRows + i] =
          whole + i < m ? a.data[(whole + i) * a.down + p * a.across] : 0.0f;
    }
  }
}

// Copies whole strips of rows that lie in memory as they are read. A strip gets eight lines before
// the next one does.
GPUCTL_AVX2 void CopyRows(const MatrixView& b, int64_t k, int64_t columns, float* to) {
  constexpr int64_t kAtOnce = 8;
  for (int64_t first = 0; first < k; first += kAtOnce) {
    const int64_t last = std::min(first + kAtOnce, k);
    for (int64_t j = 0; j < columns; j += kTileColumns) {
      float* strip = to + j * k + first * kTileColumns;
      for (int64_t p = first; p < last; ++p, strip += kTileColumns) {
        const float* const from = b.data + p * b.down + j;
        LoadAhead(from + kAtOnce * b.down);
        _mm256_store_ps(strip, _mm256_loadu_ps(from));
        _mm256_store_ps(strip + 8, _mm256_loadu_ps(from + 8));
      }
    }
  }
}

// Copies whole strips of columns that lie in memory as they are read: b.down is 1.
GPUCTL_AVX2 void CopyColumns(const MatrixView& b, int64_t k, int64_t columns, float* to) {
  for (int64_t j = 0; j < columns; j += kTileColumns) {
    const float* const from = b.data + j * b.across;
    float* const strip = to + j * k;
    int64_t p = 0;
    for (; p + 8 <= k; p += 8) {
      for (int64_t i = kTileColumns; p % 16 == 0 && i < 2 * kTileColumns; ++i) {
        LoadAhead(from + i * b.across + p);
      }
      Transpose8(from + p, b.across, strip + p * kTileColumns, kTileColumns);
      Transpose8(from + p + 8 * b.across, b.across, strip + p * kTileColumns + 8, kTileColumns);
    }
    for (; p < k; ++p) {
      for (int64_t i = 0; i < kTileColumns; ++i) {
        strip[p * kTileColumns + i] = from[p + i * b.across];
      }
    }
  }
}

// Copies a block of b, [k, n], to strips [k, kTileColumns]; columns that are absent become 0.
void CopyBlock(const MatrixView& b, int64_t k, int64_t n, float* to) {
  const int64_t whole = n / kTileColumns * kTileColumns;
  (b.across == 1 ? CopyRows : CopyColumns)(b, k, whole, to);
  if (whole == n) return;
  float* const strip = to + whole * k;
  for (int64_t p = 0; p < k; ++p) {
    for (int64_t i = 0; i < kTileColumns; ++i) {
      strip[p * kTileColumns + i] =
          whole + i < n ? b.data[p * b.down + (whole + i) * b.across] : 0.0f;
    }
  }
}

// Where a block of c is, and whether its transpose lies there by rows.
struct Result {
  float* data;
  int64_t down;
  bool transposed;
};

// Has the lines of a tile of c on the way while its sums are computed.
__attribute__((always_inline)) inline void LoadTileAhead(const float* tile, int64_t down) {
  for (int64_t row = 0; row < kTileRows; ++row) {
    LoadAhead(tile + row * down);
    LoadAhead(tile + row * down + kTileColumns - 1);
  }
}

// Computes a tile of c at row i and column j, `rows` by `columns` large.
template <int64_t across>
GPUCTL_AVX2 inline void ComputeTileAt(const Factors& of, bool add, const Result& c, int64_t i,
                                      int64_t j, int64_t rows, int64_t columns) {
  if (rows == kTileRows && columns == kTileColumns && !c.transposed) {
    float* const tile = c.data + i * c.down + j;
    LoadTileAhead(tile, c.down);
    return ComputeTile<across>(kRowsOfTile, of, add, tile, c.down);
  }
  alignas(64) float tile[kTileRows * kTileColumns];
  ComputeTile<across>(kRowsOfTile, of, /*add=*/false, tile, kTileColumns);
  const int64_t down = c.transposed ? 1 : c.down, across_c = c.transposed ? c.down : 1;
  float* const to = c.data + i * down + j * across_c;
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t row = 0; row < rows; ++row) {
      float& element = to[row * down + column * across_c];
      const float sum = tile[row * kTileColumns + column];
      element = add ? element + sum : sum;
    }
  }
}

// Rows of a block of a, [rows, k], as tiles read them: in strips in `room`, but for few columns of
// c whole strips of rows that lie in memory by rows are read from there.
class Rows {
 public:
  Rows(const MatrixView& a, int64_t rows, int64_t k, int64_t columns, float* room)
      : a_(a),
        rows_(rows),
        direct_(a.across == 1 && columns <= kFewColumns ? rows / kTileRows * kTileRows : 0),
        k_(k),
        room_(room) {
    CopyStrips({a.data + direct_ * a.down, a.down, a.across}, rows - direct_, k, room);
  }

  // Computes the columns of a block of c with one of b in strips.
  void Multiply(const float* b, int64_t columns, bool add, const Result& c) const {
    for (int64_t j = 0; j < columns; j += kTileColumns) {
      const int64_t wide = std::min(kTileColumns, columns - j);
      int64_t i = 0;
      for (; i < direct_; i += kTileRows) {
        ComputeTileAt<1>({k_, a_.data + i * a_.down, a_.down, b + j * k_}, add, c, i, j, kTileRows,
                         wide);
      }
      for (; i < rows_; i += kTileRows) {
        ComputeTileAt<kTileRows>({k_, room_ + (i - direct_) * k_, 1, b + j * k_}, add, c, i, j,
                                 std::min(kTileRows, rows_ - i), wide);
      }
    }
  }

 private:
  const MatrixView a_;
  const int64_t rows_;
  const int64_t direct_;  // rows that are not copied
  const int64_t k_;
  const float* const room_;
};

// The depth of all blocks but the last, which is not much smaller.
int64_t BlockDepth(int64_t k) {
  const int64_t blocks = (k + kBlockDepth - 1) / kBlockDepth;
  return ((k + blocks - 1) / blocks + 7) / 8 * 8;
}

Room& ThreadRoom() {
  thread_local Room room;
  return room;
}

void MultiplyBlocks(int64_t m, int64_t n, int64_t k, const MatrixView& a, const MatrixView& b,
                    bool add, const Result& c) {
  Room& room = ThreadRoom();
  float* const strips = room.b[0].elements;
  const int64_t depth = BlockDepth(k);
  for (int64_t j = 0; j < n; j += kBlockColumns) {
    const int64_t columns = std::min(kBlockColumns, n - j);
    for (int64_t p = 0; p < k; p += depth) {
      const int64_t deep = std::min(depth, k - p);
      CopyBlock({b.data + p * b.down + j * b.across, b.down, b.across}, deep, columns, strips);
      for (int64_t i = 0; i < m; i += kBlockRows) {
        const MatrixView block = {a.data + i * a.down + p * a.across, a.down, a.across};
        const Rows rows(block, std::min(kBlockRows, m - i), deep, columns, room.a[0].elements);
        float* const to = c.data + (c.transposed ? j * c.down + i : i * c.down + j);
        rows.Multiply(strips, columns, add || p > 0, {to, c.down, c.transposed});
      }
    }
  }
}

MatrixView Transposed(const MatrixView& x) { return {x.data, x.across, x.down}; }

}  // namespace

bool HasSgemm() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

void Sgemm(int64_t m, int64_t n, int64_t k, const MatrixView& a, const MatrixView& b, bool add,
           float* c, int64_t down) {
  // c^T = b^T a^T: then columns of b are read where they lie, or copied with less work; but c's
  // elements are spread.
  if (b.across != 1 && m <= kFewRows) {
    MultiplyBlocks(n, m, k, Transposed(b), Transposed(a), add, {c, down, /*transposed=*/true});
  } else {
    MultiplyBlocks(m, n, k, a, b, add, {c, down, /*transposed=*/false});
  }
}

void CopyToPanels(int64_t k, int64_t n, const MatrixView& b, float* panels) {
  CopyBlock(b, k, n, panels);
}

void MultiplyPanels(int64_t m, int64_t n, int64_t k, const MatrixView& a, const float* b, bool add,
                    float* c) {
  float* const room = ThreadRoom().a[0].elements;
  const int64_t depth = BlockDepth(k);
  for (int64_t i = 0; i < m; i += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, m - i);
    for (int64_t p = 0; p < k; p += depth) {
      const int64_t deep = std::min(depth, k - p);
      const MatrixView block = {a.data + i * a.down + p * a.across, a.down, a.across};
      const Rows of(block, rows, deep, n, room);
      for (int64_t j = 0; j < n; j += kPanelColumns) {
        of.Multiply(b + j * k + p * kPanelColumns, kPanelColumns, add || p > 0,
                    {c + j * m + i * kPanelColumns, kPanelColumns, /*transposed=*/false});
      }
    }
  }
}

}  // namespace gpuctl::trainer::cpu

#else

#include <cstdlib>

namespace gpuctl::trainer::cpu {

bool HasSgemm() { return false; }

void Sgemm(int64_t, int64_t, int64_t, const MatrixView&, const MatrixView&, bool, float*, int64_t) {
  std::abort();
}

void CopyToPanels(int64_t, int64_t, const MatrixView&, float*) { std::abort(); }

void MultiplyPanels(int64_t, int64_t, int64_t, const MatrixView&, const float*, bool, float*) {
  std::abort();
}

}  // namespace gpuctl::trainer::cpu

#endif
