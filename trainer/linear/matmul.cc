#include "trainer/linear/matmul.h"

#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <dlfcn.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <new>

#include "trainer/base/error.h"
#include "trainer/cpu/sgemm.h"
#include "trainer/linear/threads.h"
#include "trainer/linear/widths.h"

namespace gpuctl::trainer {
namespace {

// oneDNN's C interface: row-major, C = alpha op(A) op(B) + beta C. Returns 0 on success, else a
// dnnl_status_t.
using Sgemm = int (*)(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k,
                      float alpha, const float* a, int64_t lda, const float* b, int64_t ldb,
                      float beta, float* c, int64_t ldc);

constexpr int kDnnlOutOfMemory = 1;  // dnnl_out_of_memory
// Finds oneDNN in LibTorch's CPU library, or in a library that it links; null when it is built in
// and hidden.
Sgemm FindOneDnn() {
#if defined(__x86_64__)
  return reinterpret_cast<Sgemm>(dlsym(RTLD_DEFAULT, "dnnl_sgemm"));
#else
  return nullptr;
#endif
}

// The trainer's own product. Returns 0.
int MultiplyByAvx2(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k,
                   float /*alpha, 1*/, const float* a, int64_t lda, const float* b, int64_t ldb,
                   float beta, float* c, int64_t ldc) {
  const auto view = [](char transpose, const float* data, int64_t leading) {
    return transpose == 'N' ? cpu::MatrixView{data, leading, 1} : cpu::MatrixView{data, 1, leading};
  };
  cpu::Sgemm(m, n, k, view(transpose_a, a, lda), view(transpose_b, b, ldb), beta != 0, c, ldc);
  return 0;
}

bool HasAvx512() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f");
#else
  return false;
#endif
}

// OneDNN has its fast kernels for AVX-512.
Sgemm FindFaster() { return cpu::HasSgemm() && !HasAvx512() ? MultiplyByAvx2 : FindOneDnn(); }

Sgemm& Chosen() {
  static Sgemm chosen = FindFaster();
  return chosen;
}

// A matrix's layout in memory: by rows ('N') or by columns ('T').
struct Layout {
  char transpose = 0;  // 0: neither, the matrix cannot be passed as it is
  int64_t leading = 0;
};

Layout LayoutOf(const at::Tensor& matrix) {
  const int64_t rows = matrix.size(-2), columns = matrix.size(-1);
  const int64_t down = matrix.stride(-2), across = matrix.stride(-1);
  if ((across == 1 || columns == 1) && (down >= columns || rows == 1)) {
    return {'N', std::max(down, columns)};
  }
  if ((down == 1 || rows == 1) && (across >= rows || columns == 1)) {
    return {'T', std::max(across, rows)};
  }
  return {};
}

bool Passable(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out) {
  return Chosen() != nullptr && UsesCpuKernels(a) && UsesCpuKernels(b) && UsesCpuKernels(out) &&
         out.numel() > 0 && a.size(-1) > 0 && LayoutOf(a).transpose != 0 &&
         LayoutOf(b).transpose != 0 && LayoutOf(out).transpose == 'N';
}

// How rows and columns of one product are cut into pieces.
constexpr int64_t kSideGrain = 16;  // what a kernel does at once
struct Grid {
  int64_t row_pieces = 1;
  int64_t column_pieces = 1;
  int64_t pieces() const { return row_pieces * column_pieces; }
};

// Multiplications of a piece of a product; its packing and the threads' meeting cost little beside.
constexpr int64_t kPieceWork = 16 << 20;

// Returns into how many pieces a side is cut, of `grain` at least.
int64_t Cut(int64_t extent, int64_t grain, int64_t most) {
  return std::clamp<int64_t>(extent / grain, 1, std::clamp<int64_t>(most, 1, kMostPieces));
}

// OneDNN and BLAS choose their kernels by the extents, which decides the last bits of a sum; so the
// pieces follow from these alone. Cuts one side first, and the other one into what is left of the
// pieces. Short pieces multiply slower, because the other factor is packed for each of them.
Grid GridOf(int64_t m, int64_t n, int64_t k) {
  const int64_t most = std::min(kMostPieces, m * n * k / kPieceWork);
  Grid grid;
  if (most < 2) return grid;
  const bool columns_first = n >= m;
  int64_t& first = columns_first ? grid.column_pieces : grid.row_pieces;
  int64_t& second = columns_first ? grid.row_pieces : grid.column_pieces;
  first = Cut(columns_first ? n : m, 240, most);
  second = Cut(columns_first ? m : n, 128, most / first);
  return grid;
}

// The own product has the same bits in any pieces, so they follow from the number of threads, too:
// the grid that is done first. Costs are in multiplications, of which a thread does about forty in
// a nanosecond.
constexpr double kPackCost = 24;         // an element of a factor that is copied for a piece
constexpr double kMeetingCost = 600000;  // threads are woken, and awaited
constexpr double kLateness = 0.25;       // of a piece: the last thread is rarely in time

Grid OwnGridOf(int64_t count, int64_t m, int64_t n, int64_t k) {
  const int64_t threads = SharingThreads();
  Grid best;
  if (threads == 1) return best;
  const int64_t most_rows = std::max<int64_t>(1, m / kSideGrain);
  const int64_t most_columns = std::max<int64_t>(1, n / kSideGrain);
  double least = 0;
  Grid grid;
  for (grid.row_pieces = 1; grid.row_pieces <= most_rows; ++grid.row_pieces) {
    for (grid.column_pieces = 1; grid.column_pieces <= most_columns; ++grid.column_pieces) {
      const int64_t pieces = count * grid.pieces();
      if (grid.pieces() > 1 && pieces > 4 * threads) break;
      const double rows = static_cast<double>((m + grid.row_pieces - 1) / grid.row_pieces);
      const double columns = static_cast<double>((n + grid.column_pieces - 1) / grid.column_pieces);
      const double piece = (rows * columns + kPackCost * (rows + columns)) * static_cast<double>(k);
      const double rounds = static_cast<double>((pieces + threads - 1) / threads);
      const double cost = pieces == 1 ? piece : (rounds + kLateness) * piece + kMeetingCost;
      if (least > 0 && cost >= least) continue;
      least = cost;
      best = grid;
    }
    if (count * grid.row_pieces >= 4 * threads) break;
  }
  return best;
}

// How `count` products that are made with the chosen library are cut.
Grid GridFor(int64_t count, int64_t m, int64_t n, int64_t k) {
  return Chosen() == MultiplyByAvx2 ? OwnGridOf(count, m, n, k) : GridOf(m, n, k);
}

// Where piece `index` of a side begins: at a multiple of the grain.
int64_t SideBegin(int64_t extent, int64_t pieces, int64_t index) {
  return index == pieces ? extent : extent * index / pieces / kSideGrain * kSideGrain;
}

// Part [begin, begin + count) of a side.
struct Part {
  Part(int64_t extent, int64_t pieces, int64_t index)
      : begin(SideBegin(extent, pieces, index)),
        count(SideBegin(extent, pieces, index + 1) - begin) {}
  int64_t begin;
  int64_t count;
};

// Computes `count` products, each one step further in every operand, on this thread or in pieces.
void Multiply(const at::Tensor& a, const at::Tensor& b, bool add, const at::Tensor& out,
              int64_t count, bool alone = false) {
  const Layout la = LayoutOf(a), lb = LayoutOf(b), lo = LayoutOf(out);
  const bool batched = out.dim() == 3;
  const int64_t m = out.size(-2), n = out.size(-1), k = a.size(-1);
  const int64_t steps[] = {batched ? a.stride(0) : 0, batched ? b.stride(0) : 0,
                           batched ? out.stride(0) : 0};
  const int64_t a_down = la.transpose == 'N' ? la.leading : 1;
  const int64_t b_across = lb.transpose == 'N' ? 1 : lb.leading;
  const float *const a_data = a.data_ptr<float>(), *const b_data = b.data_ptr<float>();
  float* const out_data = out.data_ptr<float>();
  const Grid grid = alone ? Grid{} : GridFor(count, m, n, k);
  ForPieces(count * grid.pieces(), [&](int64_t piece) {
    const Part columns(n, grid.column_pieces, piece % grid.column_pieces);
    piece /= grid.column_pieces;
    const Part rows(m, grid.row_pieces, piece % grid.row_pieces);
    const int64_t z = piece / grid.row_pieces;
    const int status =
        Chosen()(la.transpose, lb.transpose, rows.count, columns.count, k, 1.0f,
                 a_data + z * steps[0] + rows.begin * a_down, la.leading,
                 b_data + z * steps[1] + columns.begin * b_across, lb.leading, add ? 1.0f : 0.0f,
                 out_data + z * steps[2] + rows.begin * lo.leading + columns.begin, lo.leading);
    if (status == kDnnlOutOfMemory) throw std::bad_alloc();
    TORCH_CHECK(status == 0, "multiply: ", MatMulLibrary(), " answered ", status);
  });
}

// Does the same with LibTorch's product, for one of them.
void MultiplyByBlas(const at::Tensor& a_mk, const at::Tensor& b_kn, bool add,
                    const at::Tensor& out_mn) {
  const auto multiply = [add](const at::Tensor& a, const at::Tensor& b, at::Tensor out) {
    if (add) {
      out.addmm_(a, b);
    } else {
      at::mm_out(out, a, b);
    }
  };
  const int64_t m = out_mn.size(0), n = out_mn.size(1);
  const Grid grid = GridOf(m, n, a_mk.size(1));
  if (!UsesCpuKernels(out_mn) || grid.pieces() == 1) {
    return multiply(a_mk, b_kn, out_mn);
  }
  ForPieces(grid.pieces(), [&](int64_t piece) {
    const int64_t row_piece = piece / grid.column_pieces, column_piece = piece % grid.column_pieces;
    const int64_t row = SideBegin(m, grid.row_pieces, row_piece);
    const int64_t rows = SideBegin(m, grid.row_pieces, row_piece + 1) - row;
    const int64_t column = SideBegin(n, grid.column_pieces, column_piece);
    const int64_t columns = SideBegin(n, grid.column_pieces, column_piece + 1) - column;
    multiply(a_mk.narrow(0, row, rows), b_kn.narrow(1, column, columns),
             out_mn.narrow(0, row, rows).narrow(1, column, columns));
  });
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor LinearForward(AutogradContext* context, const at::Tensor& x_nd,
                         const at::Tensor& weight_cd, bool halves) {
  context->save_for_backward({weight_cd.requires_grad() ? x_nd : at::Tensor(),
                              x_nd.requires_grad() ? weight_cd : at::Tensor(),
                              GradientSum(weight_cd).defined() ? weight_cd : at::Tensor()});
  at::Tensor y = RoomForLinear(x_nd, weight_cd.size(0), halves);
  for (const ColumnPart& part : ColumnParts(y)) {
    MatMulInto(x_nd, weight_cd.narrow(0, part.first, part.y_nc.size(1)).t(), /*add=*/false,
               part.y_nc);
  }
  return y;
}

variable_list LinearBackward(AutogradContext* context, const at::Tensor& dy) {
  const variable_list saved = context->get_saved_variables();
  const std::vector<ColumnPart> parts = ColumnParts(dy);
  at::Tensor dx_nd;
  if (saved[1].defined())
    dx_nd = at::empty({parts[0].y_nc.size(0), saved[1].size(1)}, dy.options());
  for (const ColumnPart& part : parts) {
    if (!dx_nd.defined()) continue;
    MatMulInto(part.y_nc, saved[1].narrow(0, part.first, part.y_nc.size(1)),
               /*add=*/part.first > 0, dx_nd);
  }
  if (!saved[0].defined()) return {dx_nd, at::Tensor(), at::Tensor()};
  const at::Tensor sum_cd = saved[2].defined() ? GradientSum(saved[2]) : at::Tensor();
  const bool add = sum_cd.defined();
  const at::Tensor dw_cd =
      add ? sum_cd
          : at::empty({parts.back().first + parts.back().y_nc.size(1), saved[0].size(1)},
                      dy.options());
  for (const ColumnPart& part : parts) {
    MatMulInto(part.y_nc.t(), saved[0], add, dw_cd.narrow(0, part.first, part.y_nc.size(1)));
  }
  return {dx_nd, add ? at::Tensor() : dw_cd, at::Tensor()};
}

// y = x W^T:  dx = dy W,  dW = dy^T x.
struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_nd,
                            const at::Tensor& weight_cd, bool halves) {
    return LinearForward(context, x_nd, weight_cd, halves);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return LinearBackward(context, gradients[0].contiguous());
  }
};

// y = x W^T + b:  db = sum over the rows of dy.
struct BiasedLinearFunction : torch::autograd::Function<BiasedLinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_nd,
                            const at::Tensor& weight_cd, const at::Tensor& bias_c, bool halves) {
    context->saved_data["bias"] = bias_c.requires_grad();
    at::Tensor y = LinearForward(context, x_nd, weight_cd, halves);
    return y.add_(AlongColumns(bias_c, y));
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor dy = gradients[0].contiguous();
    variable_list inputs = LinearBackward(context, dy);
    inputs.emplace_back();
    if (context->saved_data["bias"].toBool()) inputs[2] = dy.sum({-2}).view({-1});
    return inputs;
  }
};

}  // namespace

void PrepareMatMul() {
  if (Chosen() == nullptr) return;
  // oneDNN compiles its code now, and does not look whether it gets the memory for that.
  at::empty({128 << 20}, at::kByte);
  for (const int64_t size : {1, 8, 96, 384}) {
    const at::Tensor square = at::ones({384, 384});
    const at::Tensor narrow = square.narrow(0, 0, size), flat = square.narrow(1, 0, size);
    for (const bool add : {false, true}) {
      at::Tensor wide_out = at::zeros({size, 384}), high_out = at::zeros({384, size});
      MatMulInto(narrow, square, add, wide_out);
      MatMulInto(narrow, square.t(), add, wide_out);
      MatMulInto(flat.t(), square, add, wide_out);
      MatMulInto(flat.t(), square.t(), add, wide_out);
      MatMulInto(square, flat, add, high_out);
      MatMulInto(square, narrow.t(), add, high_out);
      MatMulInto(square.t(), flat, add, high_out);
      MatMulInto(square.t(), narrow.t(), add, high_out);
    }
  }
}

void ChooseMatMul(const std::string& library) {
  if (library == "onednn") {
    Chosen() = FindOneDnn();
    if (Chosen() == nullptr) {
      throw ConfigError("use train.matmul onednn: this LibTorch does not show its oneDNN");
    }
  } else if (library == "avx2") {
    if (!cpu::HasSgemm()) throw ConfigError("use train.matmul avx2: this processor lacks AVX2");
    Chosen() = MultiplyByAvx2;
  } else {
    Chosen() = library == "blas" ? nullptr : FindFaster();
  }
}

std::string MatMulLibrary() {
  if (Chosen() == nullptr) return "blas";
  return Chosen() == MultiplyByAvx2 ? "avx2" : "onednn";
}

std::string BlasKernels() {
  const auto name_of = reinterpret_cast<char* (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  const char* const name = name_of == nullptr ? nullptr : name_of();
  return name == nullptr ? "" : name;
}

at::Tensor MatMul(const at::Tensor& a_mk, const at::Tensor& b_kn) {
  at::Tensor out_mn = at::empty({a_mk.size(0), b_kn.size(1)}, a_mk.options());
  MatMulInto(a_mk, b_kn, /*add=*/false, out_mn);
  return out_mn;
}

void MatMulInto(const at::Tensor& a_mk, const at::Tensor& b_kn, bool add, at::Tensor out_mn) {
  if (Passable(a_mk, b_kn, out_mn)) {
    Multiply(a_mk, b_kn, add, out_mn, 1);
  } else {
    MultiplyByBlas(a_mk, b_kn, add, out_mn);
  }
}

void MatMulAlone(const at::Tensor& a_mk, const at::Tensor& b_kn, at::Tensor out_mn) {
  if (Passable(a_mk, b_kn, out_mn)) {
    Multiply(a_mk, b_kn, /*add=*/false, out_mn, 1, /*alone=*/true);
  } else {
    at::mm_out(out_mn, a_mk, b_kn);
  }
}

at::Tensor BatchedMatMul(const at::Tensor& a_zmk, const at::Tensor& b_zkn) {
  at::Tensor out_zmn = at::empty({a_zmk.size(0), a_zmk.size(1), b_zkn.size(2)}, a_zmk.options());
  if (Passable(a_zmk, b_zkn, out_zmn)) {
    Multiply(a_zmk, b_zkn, /*add=*/false, out_zmn, out_zmn.size(0));
  } else {
    at::bmm_out(out_zmn, a_zmk, b_zkn);
  }
  return out_zmn;
}

void BatchedMatMulAdd(const at::Tensor& a_zmk, const at::Tensor& b_zkn, at::Tensor out_zmn) {
  if (Passable(a_zmk, b_zkn, out_zmn)) {
    Multiply(a_zmk, b_zkn, /*add=*/true, out_zmn, out_zmn.size(0));
  } else {
    out_zmn.baddbmm_(a_zmk, b_zkn);
  }
}

at::Tensor GradientSum(const at::Tensor& weight) {
  if (!UsesCpuKernels(weight) || !weight.is_leaf() || !weight.requires_grad()) return {};
  return weight.grad();
}

at::Tensor Linear(const at::Tensor& x_nd, const at::Tensor& weight_cd, const at::Tensor& bias_c,
                  bool halves) {
  if (bias_c.defined()) return BiasedLinearFunction::apply(x_nd, weight_cd, bias_c, halves);
  return LinearFunction::apply(x_nd, weight_cd, halves);
}

at::Tensor RoomForLinear(const at::Tensor& x_nd, int64_t columns, bool halves) {
  if (!halves) return at::empty({x_nd.size(0), columns}, x_nd.options());
  return at::empty({2, x_nd.size(0), columns / 2}, x_nd.options());
}

at::Tensor AlongColumns(const at::Tensor& vector_c, const at::Tensor& y) {
  return y.dim() == 3 ? vector_c.view({2, 1, -1}) : vector_c;
}

std::vector<ColumnPart> ColumnParts(const at::Tensor& y) {
  if (y.dim() == 2) return {{0, y}};
  return {{0, y.select(0, 0)}, {y.size(2), y.select(0, 1)}};
}

}  // namespace gpuctl::trainer
