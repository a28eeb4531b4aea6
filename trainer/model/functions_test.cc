// Tests every Function in three ways: its gradient against differences in fp64, its value against
// the plain formula, and fp32 (on the CPU loops of our own) against the tensor version in fp64.

#include "trainer/model/functions.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "trainer/cpu/sgemm.h"
#include "trainer/linear/frozen_head.h"
#include "trainer/linear/frozen_matrix.h"
#include "trainer/linear/matmul.h"
#include "trainer/model/dispatch.h"
#include "trainer/tests/tensors.h"

namespace gpuctl::trainer {
namespace {

using Inputs = std::vector<at::Tensor>;
using Piece = std::function<at::Tensor(const Inputs&)>;

// Weighs the output with fixed numbers, so that the gradient of each of its elements counts.
at::Tensor Weighed(const Piece& piece, const Inputs& inputs) {
  const at::Tensor out = piece(inputs);
  return (out * RandomOnDevice(out.sizes().vec(), out.scalar_type(), 77)).sum();
}

Inputs Gradients(const Piece& piece, const Inputs& inputs) {
  Inputs leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(input.detach().requires_grad_(true));
  Weighed(piece, leaves).backward();
  Inputs gradients;
  for (const at::Tensor& leaf : leaves) gradients.push_back(leaf.grad());
  return gradients;
}

// Compares with central differences of every element, in fp64.
void ExpectTrueGradients(const Piece& piece, const Inputs& inputs) {
  constexpr double kStep = 1e-5;
  const Inputs gradients = Gradients(piece, inputs);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Inputs moved = inputs;
    moved[i] = inputs[i].clone();
    for (int64_t at = 0; at < inputs[i].numel(); ++at) {
      const at::Tensor element = moved[i].view({-1})[at];
      const double original = element.item<double>();
      element.fill_(original + kStep);
      const double above = Weighed(piece, moved).item<double>();
      element.fill_(original - kStep);
      const double below = Weighed(piece, moved).item<double>();
      element.fill_(original);
      const double expected = (above - below) / (2 * kStep);
      ASSERT_NEAR(gradients[i].reshape({-1})[at].item<double>(), expected,
                  1e-6 * std::max(1.0, std::abs(expected)))
          << "input " << i << ", element " << at;
    }
  }
}

// Compares fp32 (on the CPU the loops of trainer/cpu) with fp64 (tensor operations) on the same
// numbers.
void ExpectSameInFp32(const Piece& piece, const Inputs& inputs, double tolerance = 2e-6) {
  Inputs narrow;
  for (const at::Tensor& input : inputs) narrow.push_back(input.to(at::kFloat));
  EXPECT_LT(RelativeDifference(piece(narrow), piece(inputs)), tolerance);
  const Inputs expected = Gradients(piece, inputs);
  const Inputs found = Gradients(piece, narrow);
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_LT(RelativeDifference(found[i], expected[i]), tolerance) << "gradient " << i;
  }
}

at::Tensor Normal(const std::vector<int64_t>& shape, uint64_t sub) {
  return RandomOnDevice(shape, at::kDouble, sub);
}

at::TensorOptions OptionsOf(at::ScalarType type) {
  return at::TensorOptions(type).device(TestDevice());
}

at::Tensor Floats(const std::vector<float>& values) { return at::tensor(values).to(TestDevice()); }

at::Tensor Integers(const std::vector<int64_t>& values) {
  return at::tensor(values, at::kLong).to(TestDevice());
}

Piece Norm() {
  return [](const Inputs& in) { return RmsNorm(in[0], in[1], 1e-5); };
}

TEST(RmsNormTest, GradientIsTrue) {
  ExpectTrueGradients(Norm(), {Normal({3, 8}, 1), Normal({8}, 2)});
}

TEST(RmsNormTest, ValueIsTheFormulaInEveryWidth) {
  const Inputs in = {Normal({33, 70}, 1), Normal({70}, 2)};
  const at::Tensor plain = in[0] / (in[0].pow(2).mean({-1}, true) + 1e-5).sqrt() * in[1];
  EXPECT_LT(RelativeDifference(Norm()(in), plain), 1e-14);
  ExpectSameInFp32(Norm(), in);
  const Inputs half = {in[0].to(at::kBFloat16), in[1].to(at::kBFloat16)};
  EXPECT_LT(RelativeDifference(Norm()(half), plain), 0.01);
}

TEST(RmsNormTest, AnOffsetAddsOneToTheWeight) {
  const Inputs in = {Normal({9, 20}, 1), Normal({20}, 2)};
  const Piece offset = [](const Inputs& i) { return RmsNorm(i[0], i[1], 1e-5, true); };
  EXPECT_LT(RelativeDifference(offset(in), RmsNorm(in[0], in[1] + 1, 1e-5)), 1e-15);
  ExpectTrueGradients(offset, in);
  ExpectSameInFp32(offset, in);
}

Piece Swish() {
  return [](const Inputs& in) { return SwiGlu(in[0]); };
}

TEST(SwiGluTest, GradientIsTrue) { ExpectTrueGradients(Swish(), {Normal({3, 10}, 3)}); }

TEST(SwiGluTest, ValueIsTheFormulaInEveryWidth) {
  const at::Tensor in = Normal({17, 130}, 3) * 3;
  const at::Tensor gate = in.narrow(1, 0, 65);
  EXPECT_LT(RelativeDifference(SwiGlu(in), gate * gate.sigmoid() * in.narrow(1, 65, 65)), 1e-14);
  ExpectSameInFp32(Swish(), {in});
}

TEST(SwiGluTest, LargeInputsStayRight) {
  const at::Tensor gates = Floats({-1000.0f, -100.0f, -89.0f, 0.0f, 89.0f, 100.0f, 1000.0f});
  const at::Tensor in = at::cat({gates, at::ones({7}, OptionsOf(at::kFloat))}).view({1, 14});
  const at::Tensor out = SwiGlu(in).view({7});
  const at::Tensor expected = at::clamp_min(gates, 0);
  EXPECT_LT((out - expected).abs().max().item<float>(), 1e-6f);
}

Piece Gelu() {
  return [](const Inputs& in) { return GeGlu(in[0]); };
}

TEST(GeGluTest, GradientIsTrue) { ExpectTrueGradients(Gelu(), {Normal({3, 10}, 3)}); }

TEST(GeGluTest, ValueIsTheFormulaInEveryWidth) {
  const at::Tensor in = Normal({17, 130}, 3) * 3;
  const at::Tensor x = in.narrow(1, 0, 65);
  const at::Tensor inner = std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
  const at::Tensor plain = 0.5 * x * (1 + inner.tanh()) * in.narrow(1, 65, 65);
  EXPECT_LT(RelativeDifference(GeGlu(in), plain), 1e-14);
  ExpectSameInFp32(Gelu(), {in});
}

TEST(GeGluTest, LargeInputsStayRight) {
  // The cube of a larger one is beyond fp32, and CUDA's gradient of GELU is NaN then.
  const float most = TestDevice().is_cpu() ? 1e30f : 1e12f;
  const std::vector<float> values = {-most, -1000.0f, -20.0f, 0.0f, 20.0f, 1000.0f, most};
  const at::Tensor gates = Floats(values);
  at::Tensor in =
      at::cat({gates, at::ones({7}, OptionsOf(at::kFloat))}).view({1, 14}).requires_grad_(true);
  const at::Tensor out = GeGlu(in);
  EXPECT_TRUE(at::equal(out.detach().view({7}), at::clamp_min(gates, 0)));
  out.sum().backward();
  const at::Tensor slope = in.grad().narrow(1, 0, 7).reshape({7});
  EXPECT_LT((slope - Floats({0.0f, 0.0f, 0.0f, 0.5f, 1.0f, 1.0f, 1.0f})).abs().max().item<float>(),
            1e-6f);
}

constexpr int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 6;

Piece Attention(int64_t windows, int64_t tokens, int64_t window = 0, double scale = 0) {
  return [=](const Inputs& in) {
    const RotaryTable rotary =
        MakeRotaryTable(tokens + 3, kHeadDim, 100.0,
                        OptionsOf(in[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat));
    return CausalAttention(in[0], rotary,
                           {windows, tokens, kHeads, kKvHeads, kHeadDim, window, scale});
  };
}

at::Tensor QkvOf(int64_t windows, int64_t tokens, uint64_t sub) {
  return Normal({windows * tokens, (kHeads + 2 * kKvHeads) * kHeadDim}, sub);
}

// Returns textbook attention: repeated keys for their query heads, rotation by complex numbers, one
// big mask.
at::Tensor TextbookAttention(const at::Tensor& qkv, int64_t windows, int64_t tokens,
                             int64_t window = 0) {
  const int64_t half = kHeadDim / 2;
  const auto heads = [&](int64_t first, int64_t count) {
    return qkv.view({windows, tokens, kHeads + 2 * kKvHeads, kHeadDim})
        .narrow(2, first, count)
        .transpose(1, 2);
  };
  const auto turned = [&](const at::Tensor& x) {
    at::Tensor out = x.clone();
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t e = 0; e < half; ++e) {
        const double angle = static_cast<double>(t) * std::pow(100.0, -2.0 * e / kHeadDim);
        const at::Tensor a = x.select(2, t).select(2, e), b = x.select(2, t).select(2, e + half);
        out.select(2, t).select(2, e).copy_(a * std::cos(angle) - b * std::sin(angle));
        out.select(2, t).select(2, e + half).copy_(b * std::cos(angle) + a * std::sin(angle));
      }
    }
    return out;
  };
  const int64_t group = kHeads / kKvHeads;
  const at::Tensor q = turned(heads(0, kHeads));
  const at::Tensor k = turned(heads(kHeads, kKvHeads)).repeat_interleave(group, 1);
  const at::Tensor v = heads(kHeads + kKvHeads, kKvHeads).repeat_interleave(group, 1);
  const at::Tensor hidden =
      at::full({tokens, tokens}, -std::numeric_limits<double>::infinity(), qkv.options());
  const at::Tensor mask =
      window > 0 ? hidden.triu(1) + hidden.tril(-window) : at::Tensor(hidden.triu(1));
  const at::Tensor weights =
      (at::matmul(q, k.transpose(2, 3)) / std::sqrt(double{kHeadDim}) + mask).softmax(-1);
  return at::matmul(weights, v).transpose(1, 2).reshape({windows * tokens, kHeads * kHeadDim});
}

TEST(AttentionTest, GradientIsTrue) { ExpectTrueGradients(Attention(2, 5), {QkvOf(2, 5, 4)}); }

TEST(AttentionTest, ValueIsTheTextbookAcrossBlocks) {
  for (const int64_t tokens : {1, 7, 128, 129, 300}) {
    const at::Tensor qkv = QkvOf(2, tokens, 5);
    EXPECT_LT(RelativeDifference(Attention(2, tokens)({qkv}), TextbookAttention(qkv, 2, tokens)),
              1e-13)
        << tokens << " tokens";
  }
}

TEST(AttentionTest, Fp32LoopsMatchTheTensorVersion) {
  for (const int64_t tokens : {1, 7, 130, 300}) {
    ExpectSameInFp32(Attention(2, tokens), {QkvOf(2, tokens, 6)}, 5e-6);
  }
}

TEST(AttentionTest, WindowsHideWhatIsFarBack) {
  for (const int64_t window : {1, 2, 100, 128, 129, 400}) {
    for (const int64_t tokens : {1, 5, 129, 300}) {
      const at::Tensor qkv = QkvOf(2, tokens, 5);
      EXPECT_LT(RelativeDifference(Attention(2, tokens, window)({qkv}),
                                   TextbookAttention(qkv, 2, tokens, window)),
                1e-13)
          << tokens << " tokens, window " << window;
    }
  }
  ExpectTrueGradients(Attention(2, 6, 3, 0.7), {QkvOf(2, 6, 4)});
  ExpectSameInFp32(Attention(2, 300, 3), {QkvOf(2, 300, 6)}, 5e-6);
  ExpectSameInFp32(Attention(1, 300, 150, 0.7), {QkvOf(1, 300, 6)}, 5e-6);
}

// Two windows whose documents have these sizes.
struct PackedWindows {
  std::vector<std::vector<int64_t>> sizes;

  int64_t tokens() const { return std::accumulate(sizes[0].begin(), sizes[0].end(), int64_t{0}); }
  at::Tensor Starts() const {
    std::vector<at::Tensor> rows;
    for (const std::vector<int64_t>& window : sizes) {
      std::vector<at::Tensor> parts;
      int64_t begin = 0;
      for (const int64_t size : window) {
        parts.push_back(at::full({size}, begin, at::kLong));
        begin += size;
      }
      rows.push_back(at::cat(parts));
    }
    return at::stack(rows).to(TestDevice());
  }
};

Piece PackedAttention(const PackedWindows& windows, int64_t window = 0) {
  return [=](const Inputs& in) {
    const at::Tensor starts = windows.Starts();
    AttentionShape shape = {starts.size(0), starts.size(1), kHeads, kKvHeads, kHeadDim, window};
    shape.starts_bt = starts;
    const RotaryTable rotary =
        MakeRotaryTable(starts.size(1), kHeadDim, 100.0, OptionsOf(in[0].scalar_type()));
    return CausalAttention(in[0], RotaryOfDocuments(rotary, starts), shape);
  };
}

const PackedWindows kShortDocuments = {{{3, 1, 2}, {1, 5}}};
const PackedWindows kLongDocuments = {{{5, 200, 1, 94}, {150, 30, 110, 10}}};

TEST(AttentionTest, PackedDocumentsSeeThemselvesAlone) {
  for (const PackedWindows& windows : {kShortDocuments, kLongDocuments}) {
    for (const int64_t window : {0, 2, 140}) {
      const at::Tensor qkv = QkvOf(2, windows.tokens(), 5);
      std::vector<at::Tensor> expected;
      int64_t begin = 0;
      for (const std::vector<int64_t>& sizes : windows.sizes) {
        for (const int64_t size : sizes) {
          expected.push_back(TextbookAttention(qkv.narrow(0, begin, size), 1, size, window));
          begin += size;
        }
      }
      EXPECT_LT(RelativeDifference(PackedAttention(windows, window)({qkv}), at::cat(expected)),
                1e-13)
          << windows.tokens() << " tokens, window " << window;
    }
  }
  ExpectTrueGradients(PackedAttention(kShortDocuments), {QkvOf(2, 6, 4)});
  ExpectTrueGradients(PackedAttention(kShortDocuments, 2), {QkvOf(2, 6, 4)});
  ExpectSameInFp32(PackedAttention(kLongDocuments), {QkvOf(2, 300, 6)}, 5e-6);
  ExpectSameInFp32(PackedAttention(kLongDocuments, 140), {QkvOf(2, 300, 6)}, 5e-6);
}

TEST(AttentionTest, TheCacheGivesWhatTheWholeWindowGives) {
  constexpr int64_t kTokens = 150;
  const RotaryTable rotary = MakeRotaryTable(kTokens, kHeadDim, 100.0, OptionsOf(at::kDouble));
  const at::Tensor qkv = QkvOf(1, kTokens, 6);
  for (const int64_t window : {0, 4, 140}) {
    const at::Tensor whole = Attention(1, kTokens, window)({qkv});
    KeyValues cache;
    int64_t past = 0;
    for (const int64_t tokens : {1, 130, 1, 1, 17}) {
      const at::Tensor part =
          CachedAttention(qkv.narrow(0, past, tokens), rotary,
                          {1, tokens, kHeads, kKvHeads, kHeadDim, window, 0, past}, &cache);
      EXPECT_LT(RelativeDifference(part, whole.narrow(0, past, tokens)), 1e-13)
          << "tokens from " << past << ", window " << window;
      past += tokens;
    }
    EXPECT_EQ(past, kTokens);
  }
}

TEST(RotaryTest, ScalingChangesTheFrequencies) {
  const auto options = OptionsOf(at::kDouble);
  const auto angles = [&](const RopeScaling& scaling) {
    const RotaryTable table = MakeRotaryTable(2, 64, 10000.0, options, scaling);
    return at::atan2(table.sin_te[1], table.cos_te[1]);  // of position 1: the frequencies
  };
  const at::Tensor plain = angles({});
  EXPECT_LT(RelativeDifference(angles({"linear", 4}), plain / 4), 1e-12);
  const at::Tensor llama3 = angles({"llama3", 8, 1, 4, 1000});
  for (int64_t e = 0; e < 32; ++e) {
    const double f = plain[e].item<double>(), turns = 1000 * f / 6.283185307179586;
    const double smooth = (turns - 1) / 3;
    const double expected = turns < 1 ? f / 8 : turns > 4 ? f : (1 - smooth) * f / 8 + smooth * f;
    EXPECT_NEAR(llama3[e].item<double>(), expected, 1e-12 * f) << e;
  }
}

Piece Normed(bool offset) {
  return [=](const Inputs& in) {
    return HeadNorm(in[0], in[1], in[2], {1, in[0].size(0), kHeads, kKvHeads, kHeadDim}, 1e-5,
                    offset);
  };
}

TEST(HeadNormTest, GradientIsTrue) {
  for (const bool offset : {false, true}) {
    ExpectTrueGradients(Normed(offset),
                        {QkvOf(1, 3, 4), Normal({kHeadDim}, 1), Normal({kHeadDim}, 2)});
  }
}

TEST(HeadNormTest, ValueIsTheFormulaInEveryWidth) {
  const Inputs in = {QkvOf(1, 40, 4), Normal({kHeadDim}, 1), Normal({kHeadDim}, 2)};
  const at::Tensor heads = in[0].view({40, kHeads + 2 * kKvHeads, kHeadDim});
  at::Tensor plain = heads.clone();
  for (int64_t head = 0; head < kHeads + kKvHeads; ++head) {
    plain.select(1, head).copy_(
        RmsNorm(heads.select(1, head).contiguous(), in[head < kHeads ? 1 : 2], 1e-5));
  }
  EXPECT_LT(RelativeDifference(Normed(false)(in), plain.view_as(in[0])), 1e-14);
  ExpectSameInFp32(Normed(false), in);
  ExpectSameInFp32(Normed(true), in);
}

TEST(AttentionTest, NothingLooksAhead) {
  const at::Tensor before = QkvOf(1, 200, 7).to(at::kFloat);
  const at::Tensor after = before.clone();
  after.narrow(0, 150, 50).fill_(3.0);
  const at::Tensor a = Attention(1, 200)({before}), b = Attention(1, 200)({after});
  EXPECT_TRUE(at::equal(a.narrow(0, 0, 150), b.narrow(0, 0, 150)));
  EXPECT_FALSE(at::equal(a.narrow(0, 150, 50), b.narrow(0, 150, 50)));
}

at::Tensor PlainCrossEntropy(const at::Tensor& x, const at::Tensor& w, const at::Tensor& targets,
                             double scale) {
  return at::cross_entropy_loss(at::matmul(x, w.t()), targets, {}, at::Reduction::Sum, -1) * scale;
}

at::Tensor SomeTargets(int64_t rows, int64_t vocab) {
  at::Tensor targets = RandomIntegers({rows}, 0, vocab, 8).to(TestDevice());
  targets[1] = -1;
  targets[rows - 1] = -1;
  return targets;
}

Piece Chunked(const at::Tensor& targets, double scale, int64_t chunk) {
  return [=](const Inputs& in) { return LinearCrossEntropy(in[0], in[1], targets, scale, chunk); };
}

TEST(LinearCrossEntropyTest, GradientIsTrue) {
  ExpectTrueGradients(Chunked(SomeTargets(7, 5), 0.3, 3), {Normal({7, 4}, 9), Normal({5, 4}, 10)});
}

TEST(LinearCrossEntropyTest, ChunksMatchThePlainLossAndItsGradients) {
  const at::Tensor targets = SomeTargets(50, 37);
  const Inputs in = {Normal({50, 16}, 11), Normal({37, 16}, 12)};
  const Piece plain = [&](const Inputs& i) { return PlainCrossEntropy(i[0], i[1], targets, 0.02); };
  const Inputs expected = Gradients(plain, in);
  for (const int64_t chunk : {1, 7, 50, 1000}) {
    const Piece chunked = Chunked(targets, 0.02, chunk);
    EXPECT_LT(RelativeDifference(chunked(in), plain(in)), 1e-14);
    const Inputs found = Gradients(chunked, in);
    for (size_t i = 0; i < 2; ++i) EXPECT_LT(RelativeDifference(found[i], expected[i]), 1e-13);
    ExpectSameInFp32(chunked, in);
  }
}

TEST(LinearCrossEntropyTest, RowsCountAsOftenAsTheirFactorsSay) {
  const at::Tensor targets = SomeTargets(50, 37);
  const Inputs in = {Normal({50, 16}, 11), Normal({37, 16}, 12)};
  const at::Tensor factors = Floats({2.0f, -1.5f, 0.0f, 1.0f, 0.25f}).repeat({10});
  const Piece plain = [&](const Inputs& i) {
    const at::Tensor losses =
        at::cross_entropy_loss(at::matmul(i[0], i[1].t()), targets, {}, at::Reduction::None, -1);
    return (losses * factors.to(losses.scalar_type())).sum() * 0.02;
  };
  const Inputs expected = Gradients(plain, in);
  for (const int64_t chunk : {1, 7, 50, 1000}) {
    const Piece chunked = [&](const Inputs& i) {
      return LinearCrossEntropy(i[0], i[1], targets, 0.02, chunk, factors);
    };
    EXPECT_LT(RelativeDifference(chunked(in), plain(in)), 1e-13);
    const Inputs found = Gradients(chunked, in);
    for (size_t i = 0; i < 2; ++i) EXPECT_LT(RelativeDifference(found[i], expected[i]), 1e-13);
    ExpectSameInFp32(chunked, in);
  }
}

// The vocabulary has several parts, and the memory for the logits is kept from the call before.
TEST(LinearCrossEntropyTest, AVocabularyOfManyPartsMatchesThePlainLoss) {
  const at::Tensor targets = SomeTargets(70, 150001);
  targets[2] = 150000;
  targets[3] = 512;
  targets[4] = 511;
  const Inputs in = {Normal({70, 4}, 11), Normal({150001, 4}, 12)};
  const at::Tensor factors = Floats({2.0f, -1.5f, 0.0f, 1.0f, 0.25f}).repeat({14});
  const auto piece = [&](int64_t chunk) -> Piece {
    return [&targets, &factors, chunk](const Inputs& i) {
      return LinearCrossEntropy(i[0], i[1], targets, 0.02, chunk, factors);
    };
  };
  for (const int64_t chunk : {70, 64}) ExpectSameInFp32(piece(chunk), in);
}

bool HasOwnProduct() { return TestDevice().is_cpu() && cpu::HasSgemm(); }

// Returns the loss and the gradient by x of a head whose weight is frozen, with the trainer's own
// product where that is possible, whatever is faster on this processor.
Inputs WithFrozenHead(const at::Tensor& x, const at::Tensor& w, const at::Tensor& targets,
                      const at::Tensor& factors) {
  struct Choice {
    Choice() { ChooseMatMul(HasOwnProduct() ? "avx2" : "auto"); }
    ~Choice() { ChooseMatMul("auto"); }
  } const choice;
  const at::Tensor leaf = x.detach().clone().requires_grad_(true);
  const bool own = HasOwnProduct() && x.scalar_type() == at::kFloat;
  EXPECT_EQ(HasFrozenHeadLoss(leaf, w), own);
  const at::Tensor loss = LinearCrossEntropy(leaf, w, targets, 0.02, 64, factors);
  loss.backward();
  if (!own) return {loss.detach(), leaf.grad()};
  // The same weight in strips has the same logits.
  const at::Tensor other = x.detach().clone().requires_grad_(true);
  const at::Tensor strips = FrozenMatrix::PutInStrips(w.clone());
  EXPECT_TRUE(HasFrozenHeadLoss(other, strips));
  const at::Tensor same = LinearCrossEntropy(other, strips, targets, 0.02, 64, factors);
  same.backward();
  EXPECT_TRUE(at::equal(at::nan_to_num(same), at::nan_to_num(loss)));
  const at::Tensor difference = at::nan_to_num(other.grad()) - at::nan_to_num(leaf.grad());
  EXPECT_LE(difference.abs().max().item<double>(),
            1e-6 * at::nan_to_num(leaf.grad()).abs().max().item<double>());
  return {loss.detach(), leaf.grad()};
}

TEST(LinearCrossEntropyTest, AFrozenHeadGivesTheSameLossAndGradient) {
  for (const auto& [rows, d, vocab] : std::vector<std::array<int64_t, 3>>{
           {3, 4, 1}, {7, 5, 9}, {16, 16, 192}, {16, 16, 480}, {70, 33, 1500}, {600, 8, 20011}}) {
    at::Tensor targets = SomeTargets(rows, vocab);
    targets[0] = vocab - 1;
    const at::Tensor factors =
        Floats({2.0f, -1.5f, 0.0f, 1.0f, 0.25f}).repeat({rows / 5 + 1}).narrow(0, 0, rows);
    // Logits of some units, and of some hundreds: then the largest one decides, late in the
    // vocabulary for some rows.
    for (const double size : {1.0, 60.0}) {
      const at::Tensor x = Normal({rows, d}, 11) * size, w = Normal({vocab, d}, 12);
      const Inputs expected = WithFrozenHead(x, w, targets, factors);
      const Inputs found = WithFrozenHead(x.to(at::kFloat), w.to(at::kFloat), targets, factors);
      EXPECT_LT((found[0] - expected[0]).abs().item<double>(),
                1e-5 * expected[0].abs().item<double>() + 1e-6 * size);
      // Rounding of logits moves probabilities by as much, relatively.
      EXPECT_LT((found[1] - expected[1]).abs().max().item<double>(), 3e-7 * (1 + 20 * size));
      EXPECT_TRUE(found[1][1].eq(0).all().item<bool>());
    }
  }
}

TEST(LinearCrossEntropyTest, AFrozenHeadKeepsWhatIsNotFinite) {
  const at::Tensor x = RandomOnDevice({3, 4}, at::kFloat, 1);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    at::Tensor w = RandomOnDevice({900, 4}, at::kFloat, 2);
    w[700][1] = bad;
    const Inputs found = WithFrozenHead(x, w, Integers({5, 6, 899}), at::Tensor());
    EXPECT_FALSE(std::isfinite(found[0].item<float>()));
    EXPECT_FALSE(found[1].isfinite().all().item<bool>());
  }
}

// A token that the model is sure of has a gradient as small as the other tokens' probabilities.
TEST(LinearCrossEntropyTest, ASureModelKeepsASmallGradient) {
  if (!HasOwnProduct()) GTEST_SKIP() << "only the trainer's own product for AVX2 keeps it";
  const at::Tensor x = Floats({30.0f, 0.0f}).view({1, 2});
  const at::Tensor w = Floats({1.0f, 0.0f, 0.0f, 1.0f, 0.0f, -3.0f}).view({3, 2});
  const Inputs found = WithFrozenHead(x, w, Integers({0}), at::Tensor());
  const double other = std::exp(-30.0) / (1 + 2 * std::exp(-30.0));  // the others' probability
  EXPECT_NEAR(found[1][0][0].item<double>(), 0.02 * -2 * other, 1e-5 * other);
  EXPECT_NEAR(found[1][0][1].item<double>(), 0.02 * (1 - 3) * other, 1e-5 * other);
}

TEST(LinearCrossEntropyTest, ATargetBeyondTheVocabularyIsRefused) {
  if (!TestDevice().is_cpu()) GTEST_SKIP() << "an assertion on a GPU ends its use by the process";
  const at::Tensor x = RandomOnDevice({3, 4}, at::kFloat, 1),
                   w = RandomOnDevice({7, 4}, at::kFloat, 2);
  EXPECT_THROW(LinearCrossEntropy(x, w, Integers({1, 7, 2}), 1.0, 8), c10::Error);
  EXPECT_THROW(WithFrozenHead(x, w, Integers({1, 7, 2}), at::Tensor()), c10::Error);
}

TEST(LinearCrossEntropyTest, OnlyWantedGradientsAreComputed) {
  const at::Tensor targets = SomeTargets(7, 5);
  const Inputs in = {Normal({7, 4}, 9), Normal({5, 4}, 10)};
  const Inputs both = Gradients(Chunked(targets, 0.3, 3), in);
  for (size_t wanted = 0; wanted < 2; ++wanted) {
    Inputs leaves = {in[0].detach().clone(), in[1].detach().clone()};
    leaves[wanted].requires_grad_(true);
    Weighed(Chunked(targets, 0.3, 3), leaves).backward();
    EXPECT_TRUE(at::equal(leaves[wanted].grad(), both[wanted]));
    EXPECT_FALSE(leaves[1 - wanted].grad().defined());
  }
}

TEST(LinearCrossEntropyTest, WithoutAScoredRowTheLossAndItsGradientsAreZero) {
  const at::Tensor x = RandomOnDevice({0, 4}, at::kFloat, 1).requires_grad_(true);
  const at::Tensor w = RandomOnDevice({7, 4}, at::kFloat, 2).requires_grad_(true);
  const at::Tensor loss = LinearCrossEntropy(x, w, Integers({}), 1.0, 8);
  EXPECT_EQ(loss.item<float>(), 0.0f);
  loss.backward();
  EXPECT_TRUE(at::equal(w.grad(), at::zeros_like(w)));
}

TEST(LinearCrossEntropyTest, ExtremeLogitsStayFinite) {
  const at::Tensor x = Floats({100.0f, -100.0f}).view({2, 1});
  const at::Tensor w = Floats({1.0f, -1.0f, 0.0f}).view({3, 1});
  const at::Tensor loss = LinearCrossEntropy(x, w, Integers({0, 0}), 1.0, 8);
  EXPECT_NEAR(loss.item<float>(), 200.0f, 1e-3f);
}

TEST(LinearCrossEntropyTest, WhatIsNotFiniteStaysNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    at::Tensor x = RandomOnDevice({3, 4}, at::kFloat, 13);
    x[1][2] = bad;
    const at::Tensor w = RandomOnDevice({5, 4}, at::kFloat, 14);
    const at::Tensor targets = Integers({1, 2, 3});
    EXPECT_FALSE(std::isfinite(LinearCrossEntropy(x, w, targets, 1.0, 8).item<float>()));
    EXPECT_FALSE(std::isfinite(RmsNorm(x, w[0], 1e-5).sum().item<float>()));
    EXPECT_FALSE(std::isfinite(SwiGlu(x).sum().item<float>()));
    EXPECT_FALSE(std::isfinite(GeGlu(x).sum().item<float>()));
  }
}

TEST(DispatchTest, FindsOperatorsByNameAndFillsDefaults) {
  EXPECT_TRUE(HasOperator("aten::layer_norm"));
  EXPECT_FALSE(HasOperator("aten::no_such_operator"));
  const at::Tensor x = RandomOnDevice({2, 6}, at::kFloat, 15).requires_grad_(true);
  const at::Tensor y = CallOperator("aten::layer_norm", {x, std::vector<int64_t>{6}},
                                    {{"eps", 1e-3}, {"cudnn_enable", false}});
  EXPECT_TRUE(at::equal(y, at::layer_norm(x, {6}, {}, {}, 1e-3)));
  (y * y).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_THROW(CallOperator("aten::no_such_operator", {x}, {}), c10::Error);
}

}  // namespace
}  // namespace gpuctl::trainer
