#include "trainer/linear/matmul.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/cpu/sgemm.h"
#include "trainer/linear/threads.h"
#include "trainer/tests/expect_error.h"
#include "trainer/tests/tensors.h"

namespace gpuctl::trainer {
namespace {

// Returns the libraries that this machine's ATen has.
std::vector<std::string> Libraries() {
  std::vector<std::string> available;
  for (const char* library : {"onednn", "avx2", "blas"}) {
    try {
      ChooseMatMul(library);
      available.emplace_back(library);
    } catch (const Error&) {
      continue;
    }
  }
  ChooseMatMul("auto");
  return available;
}

// Restores the usual choice after each test.
class MatMulTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ChooseMatMul(GetParam()); }
  ~MatMulTest() override { ChooseMatMul("auto"); }
};

// Returns the same [rows, columns] numbers in different layouts: dense, transposed, and as parts of
// larger tensors.
std::vector<at::Tensor> Layouts(const at::Tensor& x) {
  at::Tensor wide = at::full({x.size(0), x.size(1) + 3}, 7.0f);
  wide.narrow(1, 2, x.size(1)).copy_(x);
  at::Tensor tall = at::full({x.size(1) + 3, x.size(0)}, 7.0f);
  tall.narrow(0, 1, x.size(1)).copy_(x.t());
  at::Tensor spread = at::full({x.size(0) * 2, x.size(1) * 2}, 7.0f);
  const at::Tensor every_second =
      spread.as_strided(x.sizes(), {spread.stride(0) * 2, spread.stride(1) * 2});
  every_second.copy_(x);
  return {x.contiguous(), x.t().contiguous().t(), wide.narrow(1, 2, x.size(1)),
          tall.narrow(0, 1, x.size(1)).t(), every_second};
}

TEST_P(MatMulTest, EveryLayoutGivesTheProduct) {
  const std::vector<std::vector<int64_t>> extents = {{5, 7, 3}, {1, 7, 3}, {5, 1, 3},
                                                     {5, 7, 1}, {1, 1, 1}, {70, 130, 90}};
  for (const auto& e : extents) {
    const at::Tensor a = RandomTensor({e[0], e[1]}, at::kFloat, 1);
    const at::Tensor b = RandomTensor({e[1], e[2]}, at::kFloat, 2);
    const at::Tensor expected = at::matmul(a.to(at::kDouble), b.to(at::kDouble));
    for (const at::Tensor& left : Layouts(a)) {
      for (const at::Tensor& right : Layouts(b)) {
        EXPECT_LT(RelativeDifference(MatMul(left, right), expected), 1e-6);
        at::Tensor sum = at::ones({e[0], e[2]});
        MatMulInto(left, right, /*add=*/true, sum);
        EXPECT_LT(RelativeDifference(sum, expected + 1), 1e-6);
      }
    }
  }
}

// These are cut by rows, by columns, and by both; the deep ones have several blocks in depth.
const std::vector<std::vector<int64_t>> kLargeExtents = {
    {1000, 600, 70}, {70, 600, 1000}, {600, 400, 970}, {30, 5003, 460}, {70, 2100, 1000}};

TEST_P(MatMulTest, LargeProductsAreCutAndWhole) {
  for (const auto& e : kLargeExtents) {
    const at::Tensor a = RandomTensor({e[0], e[1]}, at::kFloat, 1);
    const at::Tensor b = RandomTensor({e[1], e[2]}, at::kFloat, 2);
    const at::Tensor expected = at::matmul(a.to(at::kDouble), b.to(at::kDouble));
    for (const at::Tensor& left : {Layouts(a)[1], Layouts(a)[2]}) {
      for (const at::Tensor& right : {Layouts(b)[1], Layouts(b)[2]}) {
        at::Tensor whole = at::ones({e[0] + 2, e[2] + 3});
        const at::Tensor out = whole.narrow(0, 1, e[0]).narrow(1, 1, e[2]);
        MatMulInto(left, right, /*add=*/true, out);
        EXPECT_LT(RelativeDifference(out, expected + 1), 1e-5);
        MatMulInto(left, right, /*add=*/false, out);
        EXPECT_LT(RelativeDifference(out, expected), 1e-5);
        MatMulAlone(left, right, out);
        EXPECT_LT(RelativeDifference(out, expected), 1e-5);
        EXPECT_EQ(whole.eq(1.0f).sum().item<int64_t>(), whole.numel() - out.numel());
      }
    }
  }
}

TEST_P(MatMulTest, ThreadsThatShareAProductChangeNoBit) {
  std::vector<std::vector<int64_t>> extents = kLargeExtents;
  extents.insert(extents.end(), {{256, 384, 128}, {384, 256, 16}, {17, 3000, 33}, {1, 4000, 1000}});
  for (const auto& e : extents) {
    const at::Tensor a = RandomTensor({e[0], e[1]}, at::kFloat, 1);
    const at::Tensor b = RandomTensor({e[1], e[2]}, at::kFloat, 2);
    const at::Tensor transposed = a.t().contiguous().t();
    for (const int helpers : {1, 6}) {
      at::Tensor shared, shared_transposed;
      ThreadGroup group(helpers);
      std::vector<std::thread> threads;
      for (int i = 0; i < helpers; ++i) {
        threads.emplace_back([&] {
          at::set_num_threads(1);
          group.Help();
        });
      }
      group.Lead([&] {
        shared = MatMul(a, b);
        shared_transposed = MatMul(transposed, b);
      });
      for (std::thread& thread : threads) thread.join();
      EXPECT_TRUE(at::equal(shared, MatMul(a, b)));
      EXPECT_TRUE(at::equal(shared_transposed, MatMul(transposed, b)));
    }
  }
}

TEST_P(MatMulTest, PartsOfAnOutputAreFilledAndTheRestIsLeft) {
  const at::Tensor a = RandomTensor({4, 6}, at::kFloat, 3), b = RandomTensor({6, 5}, at::kFloat, 4);
  at::Tensor whole = at::full({8, 9}, 7.0f);
  MatMulInto(a, b, /*add=*/false, whole.narrow(0, 2, 4).narrow(1, 3, 5));
  EXPECT_LT(RelativeDifference(whole.narrow(0, 2, 4).narrow(1, 3, 5), at::matmul(a, b)), 1e-6);
  EXPECT_EQ(whole.eq(7.0f).sum().item<int64_t>(), 8 * 9 - 4 * 5);
}

TEST_P(MatMulTest, BatchesGoOneByOne) {
  const at::Tensor a = RandomTensor({3, 4, 6}, at::kFloat, 5);
  const at::Tensor b = RandomTensor({3, 8, 6}, at::kFloat, 6);
  const at::Tensor right = b.narrow(1, 0, 7).transpose(1, 2);
  EXPECT_LT(RelativeDifference(BatchedMatMul(a, right), at::matmul(a, right)), 1e-6);
  at::Tensor whole = at::ones({3, 9, 7});
  BatchedMatMulAdd(a, right, whole.narrow(1, 0, 4));
  EXPECT_LT(RelativeDifference(whole.narrow(1, 0, 4), at::matmul(a, right) + 1), 1e-6);
  EXPECT_EQ(whole.narrow(1, 4, 5).eq(1.0f).sum().item<int64_t>(), 3 * 5 * 7);
}

TEST_P(MatMulTest, OtherWidthsWorkToo) {
  for (const at::ScalarType type : {at::kDouble, at::kBFloat16}) {
    const at::Tensor a = RandomTensor({5, 7}, type, 7), b = RandomTensor({7, 3}, type, 8);
    EXPECT_TRUE(at::equal(MatMul(a, b), at::mm(a, b)));
  }
}

TEST_P(MatMulTest, LinearHasTheGradientsOfMm) {
  const auto gradients = [](const at::Tensor& x, const at::Tensor& w, bool ours) {
    const at::Tensor lx = x.detach().requires_grad_(true), lw = w.detach().requires_grad_(true);
    const at::Tensor y = ours ? Linear(lx, lw) : at::mm(lx, lw.t());
    (y * y).sum().backward();
    return std::make_pair(lx.grad(), lw.grad());
  };
  const at::Tensor x = RandomTensor({6, 4}, at::kFloat, 9),
                   w = RandomTensor({5, 4}, at::kFloat, 10);
  const auto found = gradients(x, w, true), expected = gradients(x, w, false);
  EXPECT_LT(RelativeDifference(found.first, expected.first), 1e-6);
  EXPECT_LT(RelativeDifference(found.second, expected.second), 1e-6);
  EXPECT_TRUE(found.second.is_contiguous());
}

TEST_P(MatMulTest, ABiasIsAddedAndHasItsGradient) {
  const at::Tensor x = RandomTensor({6, 4}, at::kFloat, 9).requires_grad_(true);
  const at::Tensor w = RandomTensor({5, 4}, at::kFloat, 10).requires_grad_(true);
  const at::Tensor b = RandomTensor({5}, at::kFloat, 11).requires_grad_(true);
  const at::Tensor y = Linear(x, w, b);
  EXPECT_LT(RelativeDifference(y, at::mm(x, w.t()) + b), 1e-6);
  (y * y).sum().backward();
  EXPECT_LT(RelativeDifference(b.grad(), 2 * y.sum({0})), 1e-6);
  EXPECT_LT(RelativeDifference(w.grad(), 2 * at::mm(y.t(), x)), 1e-6);
  EXPECT_LT(RelativeDifference(x.grad(), 2 * at::mm(y, w)), 1e-6);
}

// Without x there is no product for the weight's gradient, and without the weight none for x.
TEST_P(MatMulTest, AFrozenTensorCostsNoProduct) {
  const at::Tensor b = RandomTensor({5}, at::kFloat, 11);
  for (const bool biased : {false, true}) {
    for (const bool frozen_weight : {false, true}) {
      const at::Tensor x_leaf = RandomTensor({6, 4}, at::kFloat, 9).requires_grad_(frozen_weight);
      const at::Tensor w_leaf = RandomTensor({5, 4}, at::kFloat, 10).requires_grad_(!frozen_weight);
      const at::Tensor x = x_leaf.clone(), w = w_leaf.clone();  // leaves are also held elsewhere
      const size_t x_uses = x.use_count(), w_uses = w.use_count();
      const at::Tensor y = biased ? Linear(x, w, b) : Linear(x, w);
      EXPECT_EQ(x.use_count() > x_uses, !frozen_weight);
      EXPECT_EQ(w.use_count() > w_uses, frozen_weight);
      y.sum().backward();
      EXPECT_EQ(x_leaf.grad().defined(), frozen_weight);
      EXPECT_EQ(w_leaf.grad().defined(), !frozen_weight);
    }
  }
}

TEST(MatMulLibrary, IsTheOwnOneWithoutAvx512) {
#if defined(__x86_64__)
  const bool own = cpu::HasSgemm() && !__builtin_cpu_supports("avx512f");
  EXPECT_EQ(MatMulLibrary(), own ? "avx2" : "onednn");
#else
  EXPECT_EQ(MatMulLibrary(), "blas");
#endif
}

// Extents around those of tiles, strips, blocks and their depth.
TEST(OwnMatMul, AnElementHasTheSameBitsInEveryPiece) {
  if (!cpu::HasSgemm()) GTEST_SKIP() << "this processor lacks AVX2";
  ChooseMatMul("avx2");
  for (const std::vector<int64_t>& e : std::vector<std::vector<int64_t>>{
           {53, 17, 31}, {97, 1030, 40}, {49, 2049, 530}, {6, 8, 16}, {700, 33, 5}}) {
    const at::Tensor a = RandomTensor({e[0], e[1]}, at::kFloat, 1);
    const at::Tensor b = RandomTensor({e[1], e[2]}, at::kFloat, 2);
    const at::Tensor whole = MatMul(a, b);
    EXPECT_LT(RelativeDifference(whole, at::matmul(a.to(at::kDouble), b.to(at::kDouble))), 1e-5);
    for (const at::Tensor& left : Layouts(a)) {
      for (const at::Tensor& right : Layouts(b)) {
        if (left.stride(0) != 1 && left.stride(1) != 1) continue;  // LibTorch multiplies these
        if (right.stride(0) != 1 && right.stride(1) != 1) continue;
        EXPECT_TRUE(at::equal(MatMul(left, right), whole));
        const int64_t row = e[0] / 2, column = e[2] / 3;
        const at::Tensor piece =
            MatMul(left.narrow(0, row, e[0] - row), right.narrow(1, column, e[2] - column));
        EXPECT_TRUE(
            at::equal(piece, whole.narrow(0, row, e[0] - row).narrow(1, column, e[2] - column)));
      }
    }
  }
  ChooseMatMul("auto");
}

TEST(MatMulLibrary, ThatIsNotThereIsRefused) {
  const std::vector<std::string> available = Libraries();
  const std::string before = MatMulLibrary();
  for (const char* library : {"onednn", "avx2"}) {
    if (testing::Value(available, testing::Contains(library))) continue;
    EXPECT_ERROR(ChooseMatMul(library), ExitCode::kBadConfig, library);
    EXPECT_EQ(MatMulLibrary(), before);
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, MatMulTest, testing::ValuesIn(Libraries()),
                         [](const auto& library) { return library.param; });

}  // namespace
}  // namespace gpuctl::trainer
