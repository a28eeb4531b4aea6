// Legend: n rows, d d_model, v vocabulary, p panels of 16 rows (cpu/sgemm.h).

#include "trainer/linear/frozen_head.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "trainer/cpu/kernels.h"
#include "trainer/cpu/sgemm.h"
#include "trainer/linear/frozen_matrix.h"
#include "trainer/linear/matmul.h"
#include "trainer/linear/threads.h"
#include "trainer/linear/widths.h"

namespace gpuctl::trainer {
namespace {

using cpu::kPanelColumns;

// Rows of x that are taken together, and rows of W in a part of the vocabulary, whose logits a
// second-level cache can hold. Parts begin with a strip.
constexpr int64_t kRows = 512;
constexpr int64_t kPartRows = 192;
static_assert(kPartRows % cpu::kStripRows == 0);
// Pieces of the vocabulary, each with a sum of the gradient of its own: a function of the extents,
// so that any number of threads gives the same bits.
constexpr int64_t kPieces = 32;

constexpr float kLowest = std::numeric_limits<float>::lowest();
// A larger logit moves the reference. exp of this is far from the end of fp32.
constexpr float kAboveReference = 16;

// What a piece of the vocabulary has summed for the rows, but for each row's own target.
struct Sums {
  at::Tensor reference_n;
  at::Tensor exp_n;    // the sum of exp(logit - reference)
  at::Tensor dx_pd16;  // the sum of exp(logit - reference) w, in panels [D, 16]; perhaps undefined
};

int64_t PiecesOf(int64_t vocab) { return std::clamp<int64_t>(vocab / kPartRows, 1, kPieces); }

int64_t PieceBegin(int64_t vocab, int64_t piece) {
  const int64_t pieces = PiecesOf(vocab);
  return piece == pieces ? vocab : vocab * piece / pieces / cpu::kStripRows * cpu::kStripRows;
}

class Head {
 public:
  Head(const at::Tensor& x_nd, const at::Tensor& weight, const ScoredRows& of, bool gradient)
      : gradient_(gradient),
        rows_(x_nd.size(0)),
        d_(x_nd.size(1)),
        vocab_(weight.numel() / d_),
        wide_(cpu::PanelColumns(rows_)),
        options_(x_nd.options()),
        weight_{weight.data_ptr<float>(), vocab_, d_},
        in_strips_(FrozenMatrix::IsInStrips(weight)),
        target_n_(of.target_n.contiguous()),
        targets_(target_n_.data_ptr<int64_t>()),
        at_target_(static_cast<size_t>(rows_)) {
    for (int64_t n = 0; n < rows_; ++n) {
      TORCH_CHECK_INDEX(targets_[n] < vocab_, "cross entropy: a target beyond the vocabulary");
    }
    x_pd16_ = at::empty({d_ * wide_}, options_);
    cpu::CopyToPanels(d_, rows_, {x_nd.data_ptr<float>(), 1, d_}, x_pd16_.data_ptr<float>());
  }

  // Sums the tokens [begin, end).
  Sums Sum(int64_t begin, int64_t end) {
    Sums sums = {at::full({wide_}, kLowest, options_), at::zeros({wide_}, options_),
                 gradient_ ? at::zeros({d_ * wide_}, options_) : at::Tensor()};
    const at::Tensor part = at::empty({kPartRows * wide_}, options_);
    float* const logits = part.data_ptr<float>();
    for (int64_t first = begin; first < end; first += kPartRows) {
      const int64_t count = std::min(kPartRows, end - first);
      Multiply(first, count, logits);
      TakeTargets(first, count, logits);
      for (int64_t n = 0; n < wide_; n += kPanelColumns) Exp(count, n, logits + n * count, sums);
      if (!gradient_) continue;
      AddTransposed(first, count, logits, sums.dx_pd16.data_ptr<float>());
    }
    return sums;
  }

  // Adds the pieces' sums. Returns the loss.
  double Finish(const std::vector<Sums>& pieces, const ScoredRows& of, const at::Tensor& dx_nd) {
    const at::Tensor factor_n = of.factor_n.defined() ? of.factor_n.contiguous() : of.factor_n;
    double loss = 0;
    // Of the pieces' sums, and of the target's row of W.
    std::vector<float> shares(pieces.size() * static_cast<size_t>(wide_));
    std::vector<float> back(static_cast<size_t>(rows_));
    for (int64_t n = 0; n < rows_; ++n) {
      if (targets_[n] < 0) continue;
      const double factor =
          factor_n.defined() ? of.scale * factor_n.data_ptr<float>()[n] : of.scale;
      loss += factor * Row(pieces, n, factor, shares, back);
    }
    if (!gradient_) return loss;
    ForRanges(wide_ / kPanelColumns, RowGrain(kPanelColumns * d_), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin * kPanelColumns; n < end * kPanelColumns; n += kPanelColumns) {
        WriteRows(pieces, shares, back, n, dx_nd.data_ptr<float>());
      }
    });
    return loss;
  }

 private:
  // Computes the logits of a part of the vocabulary.
  void Multiply(int64_t first, int64_t count, float* logits) const {
    const float* const x = x_pd16_.data_ptr<float>();
    if (in_strips_) return cpu::MultiplyStrips(weight_, first, count, wide_, x, logits);
    const float* const weight = weight_.data + first * d_;
    cpu::MultiplyPanels(count, wide_, d_, {weight, d_, 1}, x, /*add=*/false, logits);
  }

  // Adds the part's rows of W times the factors to dx.
  void AddTransposed(int64_t first, int64_t count, const float* factors, float* dx) const {
    if (in_strips_) return cpu::AddTransposedStrips(weight_, first, count, wide_, factors, dx);
    const float* const weight = weight_.data + first * d_;
    cpu::MultiplyPanels(d_, wide_, count, {weight, 1, d_}, factors, /*add=*/true, dx);
  }

  // Keeps the targets' logits, and leaves them out of the sums: p - 1 would lose what little the
  // other tokens have where the model is sure.
  void TakeTargets(int64_t first, int64_t count, float* logits) {
    for (int64_t n = 0; n < rows_; ++n) {
      if (targets_[n] < first || targets_[n] >= first + count) continue;
      float& logit = logits[n / kPanelColumns * kPanelColumns * count +
                            (targets_[n] - first) * kPanelColumns + n % kPanelColumns];
      at_target_[static_cast<size_t>(n)] = logit;
      logit = kLowest;
    }
  }

  void Exp(int64_t count, int64_t n, float* logits, const Sums& sums) const {
    float* const reference = sums.reference_n.data_ptr<float>() + n;
    float* const exp = sums.exp_n.data_ptr<float>() + n;
    float largest[kPanelColumns], factors[kPanelColumns];
    cpu::LargestOfPanel(count, logits, largest);
    bool moves = false;
    for (int64_t i = 0; i < kPanelColumns; ++i) {
      factors[i] = 1;
      if (largest[i] <= reference[i] + kAboveReference) continue;
      moves = true;
      factors[i] = std::exp(reference[i] - largest[i]);
      reference[i] = largest[i];
      exp[i] *= factors[i];
    }
    if (moves && gradient_) cpu::ScalePanel(d_, factors, sums.dx_pd16.data_ptr<float>() + n * d_);
    cpu::ExpPanel(count, reference, logits, exp);
  }

  // Returns the loss of a row, and writes its shares.
  double Row(const std::vector<Sums>& pieces, int64_t n, double factor, std::vector<float>& shares,
             std::vector<float>& back) const {
    const auto at = [n](const at::Tensor& x_n) {
      return static_cast<double>(x_n.data_ptr<float>()[n]);
    };
    const double target = at_target_[static_cast<size_t>(n)];
    double reference = target;
    for (const Sums& piece : pieces) reference = std::max(reference, at(piece.reference_n));
    double others = 0;
    for (const Sums& piece : pieces) {
      others += at(piece.exp_n) * std::exp(at(piece.reference_n) - reference);
    }
    const double all = others + std::exp(target - reference);
    for (size_t i = 0; i < pieces.size(); ++i) {
      shares[i * static_cast<size_t>(wide_) + static_cast<size_t>(n)] =
          static_cast<float>(factor * std::exp(at(pieces[i].reference_n) - reference) / all);
    }
    back[static_cast<size_t>(n)] = static_cast<float>(factor * others / all);
    return std::log(all) + reference - target;
  }

  void CopyRowOfWeight(int64_t row, float* to) const {
    if (in_strips_) return cpu::CopyRow(weight_, row, to);
    std::copy_n(weight_.data + row * d_, d_, to);
  }

  // Writes a panel's rows of dx.
  void WriteRows(const std::vector<Sums>& pieces, const std::vector<float>& shares,
                 const std::vector<float>& back, int64_t n, float* dx) const {
    const int64_t count = std::min(kPanelColumns, rows_ - n);
    std::vector<float> sum(static_cast<size_t>(kPanelColumns * d_));
    std::vector<float> of_target(static_cast<size_t>(d_));
    for (size_t piece = 0; piece < pieces.size(); ++piece) {
      cpu::AddPanel(d_, shares.data() + piece * static_cast<size_t>(wide_) + n,
                    pieces[piece].dx_pd16.data_ptr<float>() + n * d_, sum.data());
    }
    for (int64_t i = 0; i < count; ++i) {
      float* const row = dx + (n + i) * d_;
      const int64_t target = targets_[n + i];
      if (target < 0) {
        std::fill(row, row + d_, 0.0f);
        continue;
      }
      const float share = back[static_cast<size_t>(n + i)];
      CopyRowOfWeight(target, of_target.data());
      for (int64_t d = 0; d < d_; ++d) {
        row[d] = sum[static_cast<size_t>(d * kPanelColumns + i)] -
                 share * of_target[static_cast<size_t>(d)];
      }
    }
  }

  const bool gradient_;
  const int64_t rows_;
  const int64_t d_;
  const int64_t vocab_;
  const int64_t wide_;  // rows, filled up to whole panels
  const at::TensorOptions options_;
  const cpu::StripsView weight_;
  const bool in_strips_;  // or dense
  const at::Tensor target_n_;
  const int64_t* const targets_;
  at::Tensor x_pd16_;
  std::vector<float> at_target_;
};

}  // namespace

bool HasFrozenHeadLoss(const at::Tensor& x_nd, const at::Tensor& weight) {
  const bool own = MatMulLibrary() == "avx2" || FrozenMatrix::IsInStrips(weight);
  return own && UsesCpuKernels(x_nd) && UsesCpuKernels(weight) && weight.is_contiguous() &&
         x_nd.is_contiguous() && x_nd.numel() > 0;
}

double FrozenHeadLoss(const at::Tensor& x_nd, const at::Tensor& weight, const ScoredRows& of,
                      const at::Tensor& dx_nd) {
  const int64_t vocab = weight.numel() / x_nd.size(1), pieces = PiecesOf(vocab);
  double loss = 0;
  for (int64_t first = 0; first < x_nd.size(0); first += kRows) {
    const int64_t rows = std::min(kRows, x_nd.size(0) - first);
    const auto narrow = [&](const at::Tensor& x) {
      return x.defined() ? x.narrow(0, first, rows) : x;
    };
    const ScoredRows scored = {narrow(of.target_n), narrow(of.factor_n), of.scale};
    Head head(narrow(x_nd), weight, scored, dx_nd.defined());
    std::vector<Sums> sums(static_cast<size_t>(pieces));
    ForPieces(pieces, [&](int64_t piece) {
      sums[static_cast<size_t>(piece)] =
          head.Sum(PieceBegin(vocab, piece), PieceBegin(vocab, piece + 1));
    });
    loss += head.Finish(sums, scored, narrow(dx_nd));
  }
  return loss;
}

int64_t FrozenHeadBytes(int64_t rows, int64_t d_model, int64_t vocab_size, int threads) {
  const int64_t wide = cpu::PanelColumns(std::min(rows, kRows)), pieces = PiecesOf(vocab_size);
  const int64_t at_once = std::min<int64_t>(threads, pieces);
  return 4 * wide * ((pieces + 1) * d_model + at_once * kPartRows);
}

}  // namespace gpuctl::trainer
