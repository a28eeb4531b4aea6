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
constexpr int64_t kTileRows = kStripRows;
constexpr int64_t kTileColumns = kPanelColumns;
constexpr auto kRowsOfTile = std::make_index_sequence<kTileRows>();

// The largest blocks of a, which the second-level cache holds, and of b. Depth is large because c
// is read and written once for each block of it.
constexpr int64_t kBlockRows = 8 * kTileRows;
constexpr int64_t kBlockColumns = 32 * kTileColumns;
constexpr int64_t kBlockDepth = 1024;

// Columns of a matrix in strips are taken so many rows at a time, a multiple of kStripRows, and
// read where they lie: more of them would meet in the same sets of a cache, because strips are
// equally far from each other. Where that distance is a multiple of kSameSets elements, fewer
// would, too: that is so for matrices with a multiple of 2048 columns.
constexpr int64_t kColumnDepth = 192;
constexpr int64_t kSameSets = 4096;
static_assert(kColumnDepth % kStripRows == 0 && kColumnDepth <= kBlockDepth);

// For so many columns of c rows of a are not worth a copy.
constexpr int64_t kFewColumns = 2 * kTileColumns;

// For so few rows of c the product of the transposed matrices takes less time, where b lies in
// memory by columns.
constexpr int64_t kFewRows = 128;

// A line of the caches.
struct alignas(64) Line {
  float elements[16];
};

// A thread's copies of a block of a, in strips [k, kTileRows], and of one of b, in panels
// [k, kTileColumns]. Where b lies in panels already, its place may hold a block of c in panels.
static_assert(kStripsColumns <= kBlockColumns && kBlockRows <= kBlockDepth);
struct Room {
  std::vector<Line> a = std::vector<Line>(kBlockRows * kBlockDepth / 16 + 1);
  std::vector<Line> b = std::vector<Line>(kBlockColumns * kBlockDepth / 16);
};

// How a tile reads its rows of a. Elements of a row are `across` apart, rows `down` apart (0: known
// only at run time). After `stretch` elements of each row the next ones are somewhere else.
template <int64_t across_, int64_t down_, int64_t stretch_>
struct Form {
  static constexpr int64_t across = across_;
  static constexpr int64_t down = down_;
  static constexpr auto stretch = std::make_index_sequence<stretch_>();
};
using InMemory = Form<1, 0, 4>;
using InStrips = Form<kTileRows, 1, 4>;
using InTransposedStrips = Form<1, kTileRows, kTileRows>;

// What a tile has loaded into the second-level cache meanwhile, a line for each stretch.
struct Ahead {
  const float* line;
  int64_t step;  // from one line to the next
};

struct Factors {
  int64_t k;
  const float* a;
  int64_t a_down;  // where the form does not tell
  int64_t a_next;  // from one stretch to the next
  const float* b;  // a panel
  Ahead ahead;
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

// Computes c = a b or c += a b for one tile. Where GCC inlines it, the loop's sums do not all stay
// in registers.
template <typename F, size_t... row, size_t... column>
__attribute__((noinline)) GPUCTL_AVX2 void ComputeTile(std::index_sequence<row...> rows,
                                                       std::index_sequence<column...>,
                                                       const Factors& of, bool add, float* c,
                                                       int64_t c_down) {
  __m256 left[] = {((void)row, _mm256_setzero_ps())...};
  __m256 right[] = {((void)row, _mm256_setzero_ps())...};
  // Two pointers, so that the processor can add the rows' distances itself.
  const int64_t a_down = F::down == 0 ? of.a_down : F::down;
  const float *upper = of.a, *lower = of.a + kTileRows / 2 * a_down, *b = of.b,
              *ahead = of.ahead.line;
  constexpr int64_t kStretch = sizeof...(column);
  int64_t p = of.k;
  for (; p >= kStretch; p -= kStretch) {
    _mm_prefetch(ahead, _MM_HINT_T1);
    ahead += of.ahead.step;
    (AddProducts(rows, upper + column * F::across, lower + column * F::across, a_down,
                 b + column * kTileColumns, left, right),
     ...);
    upper += of.a_next;
    lower += of.a_next;
    b += kStretch * kTileColumns;
  }
  for (; p > 0; --p, upper += F::across, lower += F::across, b += kTileColumns) {
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

// Copies whole panels of rows that lie in memory as they are read. A panel gets eight lines before
// the next one does.
GPUCTL_AVX2 void CopyRows(const MatrixView& b, int64_t k, int64_t columns, float* to) {
  constexpr int64_t kAtOnce = 8;
  for (int64_t first = 0; first < k; first += kAtOnce) {
    const int64_t last = std::min(first + kAtOnce, k);
    for (int64_t j = 0; j < columns; j += kTileColumns) {
      float* panel = to + j * k + first * kTileColumns;
      for (int64_t p = first; p < last; ++p, panel += kTileColumns) {
        const float* const from = b.data + p * b.down + j;
        LoadAhead(from + kAtOnce * b.down);
        _mm256_store_ps(panel, _mm256_loadu_ps(from));
        _mm256_store_ps(panel + 8, _mm256_loadu_ps(from + 8));
      }
    }
  }
}

// Copies `rows` elements of each column of a panel, a multiple of eight; columns are `across`
// apart.
GPUCTL_AVX2 inline void TransposeColumns(const float* from, int64_t across, int64_t rows,
                                         float* panel) {
  constexpr int64_t kSide = 8;
  for (int64_t i = 0; i < kTileColumns; i += kSide) {
    for (int64_t p = 0; p < rows; p += kSide) {
      Transpose8(from + i * across + p, across, panel + p * kTileColumns + i, kTileColumns);
    }
  }
}

// Copies whole panels of columns that lie in memory as they are read: b.down is 1. Whole lines are
// read at once; where columns are far apart, the first-level cache would not keep their other half.
GPUCTL_AVX2 void CopyColumns(const MatrixView& b, int64_t k, int64_t columns, float* to) {
  for (int64_t j = 0; j < columns; j += kTileColumns) {
    const float* const from = b.data + j * b.across;
    float* const panel = to + j * k;
    int64_t p = 0;
    for (; p + 16 <= k; p += 16) {
      TransposeColumns(from + p, b.across, 16, panel + p * kTileColumns);
    }
    for (; p + 8 <= k; p += 8) TransposeColumns(from + p, b.across, 8, panel + p * kTileColumns);
    for (; p < k; ++p) {
      for (int64_t i = 0; i < kTileColumns; ++i) {
        panel[p * kTileColumns + i] = from[p + i * b.across];
      }
    }
  }
}

// Copies a block of b, [k, n], to panels [k, kTileColumns]; columns that are absent become 0.
void CopyBlock(const MatrixView& b, int64_t k, int64_t n, float* to) {
  const int64_t whole = n / kTileColumns * kTileColumns;
  (b.across == 1 ? CopyRows : CopyColumns)(b, k, whole, to);
  if (whole == n) return;
  float* const panel = to + whole * k;
  for (int64_t p = 0; p < k; ++p) {
    for (int64_t i = 0; i < kTileColumns; ++i) {
      panel[p * kTileColumns + i] =
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

// Has the lines of a tile of c on the way while its sums are computed. A row of a panel is a line.
__attribute__((always_inline)) inline void LoadTileAhead(const float* tile, int64_t down) {
  for (int64_t row = 0; row < kTileRows; ++row) {
    LoadAhead(tile + row * down);
    if (down != kPanelColumns) LoadAhead(tile + row * down + kTileColumns - 1);
  }
}

// Computes a tile of c at row i and column j, `rows` by `columns` large.
template <typename F>
GPUCTL_AVX2 inline void ComputeTileAt(const Factors& of, bool add, const Result& c, int64_t i,
                                      int64_t j, int64_t rows, int64_t columns) {
  if (rows == kTileRows && columns == kTileColumns && !c.transposed) {
    float* const tile = c.data + i * c.down + j;
    LoadTileAhead(tile, c.down);
    return ComputeTile<F>(kRowsOfTile, F::stretch, of, add, tile, c.down);
  }
  alignas(64) float tile[kTileRows * kTileColumns];
  ComputeTile<F>(kRowsOfTile, F::stretch, of, /*add=*/false, tile, kTileColumns);
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

  // Computes the columns of a block of c with one of b in panels.
  void Multiply(const float* b, int64_t columns, bool add, const Result& c) const {
    for (int64_t j = 0; j < columns; j += kTileColumns) {
      const float* const panel = b + j * k_;
      const int64_t wide = std::min(kTileColumns, columns - j);
      int64_t i = 0;
      for (; i < direct_; i += kTileRows) {
        const Factors of = {
            k_, a_.data + i * a_.down, a_.down, InMemory::stretch.size(), panel, {panel, 0}};
        ComputeTileAt<InMemory>(of, add, c, i, j, kTileRows, wide);
      }
      for (; i < rows_; i += kTileRows) {
        const Factors of = {k_,    room_ + (i - direct_) * k_,
                            1,     InStrips::stretch.size() * kTileRows,
                            panel, {panel, 0}};
        ComputeTileAt<InStrips>(of, add, c, i, j, std::min(kTileRows, rows_ - i), wide);
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
  float* const panels = room.b[0].elements;
  const int64_t depth = BlockDepth(k);
  for (int64_t j = 0; j < n; j += kBlockColumns) {
    const int64_t columns = std::min(kBlockColumns, n - j);
    for (int64_t p = 0; p < k; p += depth) {
      const int64_t deep = std::min(depth, k - p);
      CopyBlock({b.data + p * b.down + j * b.across, b.down, b.across}, deep, columns, panels);
      for (int64_t i = 0; i < m; i += kBlockRows) {
        const MatrixView block = {a.data + i * a.down + p * a.across, a.down, a.across};
        const Rows rows(block, std::min(kBlockRows, m - i), deep, columns, room.a[0].elements);
        float* const to = c.data + (c.transposed ? j * c.down + i : i * c.down + j);
        rows.Multiply(panels, columns, add || p > 0, {to, c.down, c.transposed});
      }
    }
  }
}

// Panels that begin `step` elements apart.
struct ConstPanels {
  const float* data;
  int64_t step;
};
struct Panels {
  float* data;
  int64_t step;
};

void MultiplyPanelsAt(int64_t m, int64_t n, int64_t k, const MatrixView& a, const ConstPanels& b,
                      bool add, const Panels& c) {
  float* const room = ThreadRoom().a[0].elements;
  const int64_t depth = BlockDepth(k);
  for (int64_t i = 0; i < m; i += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, m - i);
    for (int64_t p = 0; p < k; p += depth) {
      const int64_t deep = std::min(depth, k - p);
      const MatrixView block = {a.data + i * a.down + p * a.across, a.down, a.across};
      const Rows of(block, rows, deep, n, room);
      for (int64_t j = 0; j < n; j += kPanelColumns) {
        const int64_t panel = j / kPanelColumns;
        of.Multiply(b.data + panel * b.step + p * kPanelColumns, kPanelColumns, add || p > 0,
                    {c.data + panel * c.step + i * kPanelColumns, kPanelColumns,
                     /*transposed=*/false});
      }
    }
  }
}

int64_t WholeStrips(const StripsView& a) { return a.rows / kStripRows * kStripRows; }

// Where the strip that holds the row before `end` ends.
int64_t StripsEnd(const StripsView& a, int64_t end) {
  return std::min((end + kStripRows - 1) / kStripRows * kStripRows, a.rows);
}

// Computes c = a b for at most kBlockRows rows of a; `first` begins a strip. The first half of the
// tiles of each panel of b has the next panel loaded; the second half, at the last panels, the
// strips that come next.
void MultiplyRows(const StripsView& a, int64_t first, int64_t rows, int64_t n, const float* b,
                  const Panels& c) {
  constexpr int64_t kHalf = kBlockRows / kTileRows / 2;
  const int64_t k = a.columns, depth = BlockDepth(k);
  const int64_t whole = std::min(rows, WholeStrips(a) - first);
  const int64_t panels = PanelColumns(n) / kPanelColumns;
  for (int64_t p = 0; p < k; p += depth) {
    const int64_t deep = std::min(depth, k - p);
    const bool last = p + deep == k;
    const float* const strips = a.data + first * k + p * kStripRows;
    const float* const next_strips =
        last ? a.data + (first + whole) * k : strips + deep * kStripRows;
    for (int64_t panel = 0; panel < panels; ++panel) {
      const float* const of_b = b + panel * kPanelColumns * k + p * kPanelColumns;
      const float* const next_of_b =
          panel + 1 < panels ? of_b + kPanelColumns * k : b + (last ? 0 : p + deep) * kPanelColumns;
      const Result to = {c.data + panel * c.step, kPanelColumns, /*transposed=*/false};
      for (int64_t i = 0; i < whole; i += kTileRows) {
        const int64_t tile = i / kTileRows;
        Ahead ahead = {of_b, 0};
        if (tile < kHalf) {
          ahead = {next_of_b + tile * (deep / kHalf) * kPanelColumns, kPanelColumns};
        } else if (panel >= panels - kHalf) {
          // Half of a strip for each tile.
          const int64_t half = (panel - (panels - kHalf)) * kHalf + tile - kHalf;
          ahead = {next_strips + half / 2 * kStripRows * k + half % 2 * (deep * kStripRows / 2),
                   kPanelColumns};
        }
        const Factors of = {deep, strips + i * k, 1, InStrips::stretch.size() * kTileRows,
                            of_b, ahead};
        ComputeTileAt<InStrips>(of, /*add=*/p > 0, to, i, 0, kTileRows, kPanelColumns);
      }
    }
  }
  if (whole == rows) return;
  MultiplyPanelsAt(rows - whole, n, k, {a.data + (first + whole) * k, k, 1}, {b, k * kPanelColumns},
                   /*add=*/false, {c.data + whole * kPanelColumns, c.step});
}

// A part of a matrix.
struct Extent {
  int64_t first_row;
  int64_t rows;
  int64_t first_column;
  int64_t columns;
};

// Computes c = a^T b or c += a^T b for at most kBlockRows columns of a, and rows that begin with a
// strip. The first six tiles of each panel of b have the next panel loaded; the others, at the last
// panels, the columns that come next.
void MultiplyColumns(const StripsView& a, const Extent& of, int64_t n, const float* b, bool add,
                     const Panels& c) {
  constexpr int64_t kStretch = InTransposedStrips::stretch.size(), kEarly = kStretch;
  constexpr int64_t kLate = kBlockRows / kTileRows - kEarly;
  constexpr int64_t kLinesOfStrip = kBlockRows * kStripRows / kPanelColumns;
  const int64_t k = of.rows, step = a.columns * kStripRows;
  const int64_t whole = std::min(k, WholeStrips(a) - of.first_row);
  const int64_t panels = PanelColumns(n) / kPanelColumns;
  const float* const first_strips =
      a.data + of.first_row * a.columns + of.first_column * kStripRows;
  float* const room = ThreadRoom().a[0].elements;
  for (int64_t p = 0; p < whole; p += kColumnDepth) {
    const int64_t deep = std::min(kColumnDepth, whole - p);
    const bool last = p + deep == whole;
    const float* const strips = first_strips + p * a.columns;
    const float* const next_strips =
        last ? first_strips + kBlockRows * kStripRows : strips + deep * a.columns;
    // Columns that would meet are copied, and those that do not fill a tile: what follows these may
    // not exist.
    const int64_t lying = step % kSameSets == 0 ? 0 : of.columns / kTileRows * kTileRows;
    const int64_t copied = (of.columns - lying + kTileRows - 1) / kTileRows * kTileRows;
    for (int64_t strip = 0; strip < deep / kStripRows && copied > 0; ++strip) {
      float* const to = room + strip * copied * kStripRows;
      float* const end = std::copy_n(strips + strip * step + lying * kStripRows,
                                     (of.columns - lying) * kStripRows, to);
      std::fill(end, to + copied * kStripRows, 0.0f);
    }
    for (int64_t panel = 0; panel < panels; ++panel) {
      const float* const of_b = b + panel * kPanelColumns * k + p * kPanelColumns;
      const float* const next_of_b =
          panel + 1 < panels ? of_b + kPanelColumns * k : b + (last ? 0 : p + deep) * kPanelColumns;
      const Result to = {c.data + panel * c.step, kPanelColumns, /*transposed=*/false};
      for (int64_t j = 0; j < of.columns; j += kTileRows) {
        const int64_t tile = j / kTileRows;
        const int64_t line = (panels - 1 - panel) * kLate + tile - kEarly;
        Ahead ahead = {of_b, 0};
        if (tile < kEarly) {
          ahead = {next_of_b + tile * (deep / kStretch) * kPanelColumns, kPanelColumns};
        } else if (line < kLinesOfStrip) {
          ahead = {next_strips + line * kPanelColumns, step};
        }
        const bool lies = j < lying;
        const Factors factors = {
            deep, lies ? strips + j * kStripRows : room + (j - lying) * kStripRows,
            0,    lies ? step : copied * kStripRows,
            of_b, ahead};
        ComputeTileAt<InTransposedStrips>(factors, add || p > 0, to, j, 0,
                                          std::min(kTileRows, of.columns - j), kPanelColumns);
      }
    }
  }
  if (whole == k) return;
  const MatrixView rest = {a.data + (of.first_row + whole) * a.columns + of.first_column, 1,
                           a.columns};
  MultiplyPanelsAt(of.columns, n, k - whole, rest, {b + whole * kPanelColumns, k * kPanelColumns},
                   add || whole > 0, c);
}

// Writes (or adds) the transpose of rows [begin, end) of panels [rows, n] to `out`, whose rows
// begin `down` elements apart; row 0 belongs to its first column.
GPUCTL_AVX2 void AddTransposed(const float* panels, int64_t step, int64_t begin, int64_t end,
                               int64_t n, bool add, float* out, int64_t down) {
  constexpr int64_t kSide = 8;
  for (int64_t j = 0; j < n; j += kSide) {
    const float* const from = panels + j / kPanelColumns * step + j % kPanelColumns;
    float* const to = out + j * down;
    const int64_t columns = std::min(kSide, n - j);
    int64_t i = begin;
    for (; columns == kSide && i + kSide <= end; i += kSide) {
      __m256 column[kSide];
      Transpose(std::make_index_sequence<kSide>(), from + i * kPanelColumns, kPanelColumns, column);
      for (int64_t row = 0; row < kSide; ++row) {
        float* const eight = to + row * down + i;
        if (add) column[row] = _mm256_add_ps(column[row], _mm256_loadu_ps(eight));
        _mm256_storeu_ps(eight, column[row]);
      }
    }
    for (; i < end; ++i) {
      for (int64_t row = 0; row < columns; ++row) {
        float& element = to[row * down + i];
        const float value = from[i * kPanelColumns + row];
        element = add ? element + value : value;
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
  MultiplyPanelsAt(m, n, k, a, {b, k * kPanelColumns}, add, {c, m * kPanelColumns});
}

void PutInStrips(int64_t rows, int64_t columns, float* matrix) {
  std::vector<float> strip(static_cast<size_t>(columns * kStripRows) + 2);  // see CopyStrips
  for (int64_t row = 0; row + kStripRows <= rows; row += kStripRows) {
    float* const data = matrix + row * columns;
    CopyStrips({data, columns, 1}, kStripRows, columns, strip.data());
    std::copy_n(strip.data(), columns * kStripRows, data);
  }
}

void CopyRow(const StripsView& from, int64_t row, float* to) {
  const int64_t first = row / kStripRows * kStripRows;
  const bool whole = first + kStripRows <= from.rows;
  const float* const data =
      from.data + (whole ? first * from.columns + row % kStripRows : row * from.columns);
  for (int64_t j = 0; j < from.columns; ++j) to[j] = data[whole ? j * kStripRows : j];
}

void MultiplyStrips(const StripsView& a, int64_t first, int64_t m, int64_t n, const float* b,
                    float* c) {
  for (int64_t i = 0; i < m; i += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, m - i);
    MultiplyRows(a, first + i, rows, n, b, {c + i * kPanelColumns, m * kPanelColumns});
  }
}

void AddTransposedStrips(const StripsView& a, int64_t first, int64_t k, int64_t n, const float* b,
                         float* c) {
  for (int64_t j = 0; j < a.columns; j += kBlockRows) {
    const int64_t columns = std::min(kBlockRows, a.columns - j);
    MultiplyColumns(a, {first, k, j, columns}, n, b, /*add=*/true,
                    {c + j * kPanelColumns, a.columns * kPanelColumns});
  }
}

void TimesTransposedStrips(const StripsView& a, int64_t begin, int64_t end, int64_t n,
                           const float* x, bool add, float* out, int64_t down) {
  float* const room = ThreadRoom().b[0].elements;
  for (int64_t i = begin / kStripRows * kStripRows; i < end; i += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, StripsEnd(a, end) - i);
    const int64_t skipped = std::max<int64_t>(0, begin - i);
    MultiplyRows(a, i, rows, n, x, {room, kBlockRows * kPanelColumns});
    AddTransposed(room, kBlockRows * kPanelColumns, skipped, std::min(rows, end - i), n, add,
                  out + (i - begin), down);
  }
}

void TimesStrips(const StripsView& a, int64_t first, int64_t k, int64_t begin, int64_t end,
                 int64_t n, const float* y, bool add, float* out, int64_t down) {
  float* const room = ThreadRoom().b[0].elements;
  for (int64_t j = begin; j < end; j += kBlockRows) {
    const int64_t columns = std::min(kBlockRows, end - j);
    MultiplyColumns(a, {first, k, j, columns}, n, y, /*add=*/false,
                    {room, kBlockRows * kPanelColumns});
    AddTransposed(room, kBlockRows * kPanelColumns, 0, columns, n, add, out + (j - begin), down);
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

void PutInStrips(int64_t, int64_t, float*) { std::abort(); }

void CopyRow(const StripsView&, int64_t, float*) { std::abort(); }

void MultiplyStrips(const StripsView&, int64_t, int64_t, int64_t, const float*, float*) {
  std::abort();
}

void AddTransposedStrips(const StripsView&, int64_t, int64_t, int64_t, const float*, float*) {
  std::abort();
}

void TimesTransposedStrips(const StripsView&, int64_t, int64_t, int64_t, const float*, bool, float*,
                           int64_t) {
  std::abort();
}

void TimesStrips(const StripsView&, int64_t, int64_t, int64_t, int64_t, int64_t, const float*, bool,
                 float*, int64_t) {
  std::abort();
}

}  // namespace gpuctl::trainer::cpu

#endif
