#include "trainer/linear/frozen_matrix.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "trainer/cpu/sgemm.h"
#include "trainer/linear/nf4.h"
#include "trainer/linear/threads.h"
#include "trainer/tests/expect_error.h"
#include "trainer/tests/tensors.h"

namespace gpuctl::trainer {
namespace {

TEST(FrozenMatrixTest, ProductsByPiecesAreThoseOfTheWhole) {
  const std::vector<int64_t> part_rows = {450, 1, 301};
  const int64_t columns = 1001, rows = 752;
  const at::Tensor dense = RandomTensor({rows, columns}, at::kFloat, 3);
  const FrozenMatrix packed(FrozenMatrix::Pack(dense, part_rows, "w").to(TestDevice()), part_rows,
                            columns);
  std::vector<at::Tensor> parts;
  int64_t row = 0;
  for (const int64_t count : part_rows) {
    const int64_t values = count * columns;
    parts.push_back(
        DequantizeNf4(QuantizeNf4(dense.narrow(0, row, count).contiguous()), values, 0, values)
            .view({count, columns}));
    row += count;
  }
  const at::Tensor same = at::cat(parts).to(TestDevice());
  EXPECT_EQ(packed.rows(), rows);
  const at::Tensor x = RandomOnDevice({5, columns}, at::kFloat, 4);
  for (const auto& [first, count] :
       std::vector<std::pair<int64_t, int64_t>>{{0, rows}, {450, 1}, {440, 300}, {451, 301}}) {
    const at::Tensor some = same.narrow(0, first, count);
    at::Tensor out = at::ones({5, count}, x.options());
    packed.TimesTransposed(x, first, count, /*add=*/true, out);
    EXPECT_LT(RelativeDifference(out, at::mm(x, some.t()).add(1)), 1e-5);
    const at::Tensor y = RandomOnDevice({5, count}, at::kFloat, 5);
    at::Tensor back = at::full({5, columns}, 7.0, x.options());
    packed.Times(y, first, count, /*add=*/false, back);
    EXPECT_LT(RelativeDifference(back, at::mm(y, some)), 1e-5);
    packed.Times(y, first, count, /*add=*/true, back);
    EXPECT_LT(RelativeDifference(back, at::mm(y, some).mul(2)), 1e-5);
    EXPECT_LT(RelativeDifference(packed.RowLengths(first, count), some.norm(2, 1)), 1e-6);
    FrozenMatrix(same, columns).TimesTransposed(x, first, count, /*add=*/false, out);
    EXPECT_LT(RelativeDifference(out, at::mm(x, some.t())), 1e-5);
  }
}

TEST(FrozenMatrixTest, ValuesThatAreNotFiniteAreRefused) {
  at::Tensor dense = at::ones({2, 3});
  dense[1][2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_ERROR(FrozenMatrix::Pack(dense, {2}, "some.weight"), ExitCode::kBadData, "some.weight");
}

TEST(FrozenMatrixTest, ProductsInStripsAreThoseOfTheDenseMatrix) {
  if (!cpu::HasSgemm()) GTEST_SKIP() << "strips are for processors with AVX2";
  // Rows and columns that fill strips, tiles and blocks, and that do not; more rows of x than are
  // taken at once; strips that meet in the sets of a cache.
  for (const auto& [rows, columns, n] : std::vector<std::array<int64_t, 3>>{{6, 16, 16},
                                                                            {1, 1, 1},
                                                                            {5, 7, 3},
                                                                            {13, 50, 17},
                                                                            {752, 1001, 5},
                                                                            {96, 48, 530},
                                                                            {200, 2048, 5},
                                                                            {2059, 99, 33}}) {
    const at::Tensor dense = RandomTensor({rows, columns}, at::kFloat, 3);
    const at::Tensor stored = FrozenMatrix::PutInStrips(dense.clone());
    ASSERT_TRUE(FrozenMatrix::IsInStrips(stored));
    const FrozenMatrix strips(stored, columns);
    EXPECT_EQ(strips.rows(), rows);
    const at::Tensor index = at::arange(rows, at::kLong).flip({0});
    EXPECT_TRUE(at::equal(strips.Rows(index), dense.flip({0})));
    // x and y lie within larger tensors.
    const at::Tensor x = RandomTensor({n, columns + 3}, at::kFloat, 4).narrow(1, 1, columns);
    const at::Tensor y = RandomTensor({n, rows + 2}, at::kFloat, 5);
    for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{
             {0, rows}, {rows / 3, rows - rows / 3}, {rows / 2, 1}, {rows / 5, rows / 2}}) {
      if (count == 0) continue;
      const at::Tensor some = dense.narrow(0, first, count), part = y.narrow(1, 2, count);
      const at::Tensor room = at::full({n, rows + 5}, 7.0), out = room.narrow(1, 2, count);
      strips.TimesTransposed(x, first, count, /*add=*/false, out);
      EXPECT_LT(RelativeDifference(out, at::mm(x, some.t())), 1e-6) << rows << " " << first;
      strips.TimesTransposed(x, first, count, /*add=*/true, out);
      EXPECT_LT(RelativeDifference(out, at::mm(x, some.t()).mul(2)), 1e-6);
      at::Tensor back_room = at::full({n, columns + 4}, 7.0),
                 back = back_room.narrow(1, 1, columns);
      strips.Times(part, first, count, /*add=*/false, back);
      EXPECT_LT(RelativeDifference(back, at::mm(part, some)), 1e-6) << rows << " " << first;
      strips.Times(part, first, count, /*add=*/true, back);
      EXPECT_LT(RelativeDifference(back, at::mm(part, some).mul(2)), 1e-6);
      // Nothing else is written.
      EXPECT_EQ(room.eq(7.0f).sum().item<int64_t>(), n * (rows + 5 - count));
      EXPECT_EQ(back_room.eq(7.0f).sum().item<int64_t>(), 4 * n);
      EXPECT_TRUE(at::equal(strips.RowLengths(first, count),
                            FrozenMatrix(dense, columns).RowLengths(first, count)));
    }
    EXPECT_THROW(strips.Rows(at::full({1}, rows, at::kLong)), c10::Error);
  }
}

TEST(FrozenMatrixTest, ProductsInStripsHaveTheSameBitsWithAnyThreads) {
  if (!cpu::HasSgemm()) GTEST_SKIP() << "strips are for processors with AVX2";
  const int64_t rows = 2059, columns = 1100, n = 70;
  const FrozenMatrix strips(FrozenMatrix::PutInStrips(RandomTensor({rows, columns}, at::kFloat, 3)),
                            columns);
  const at::Tensor x = RandomTensor({n, columns}, at::kFloat, 4);
  const at::Tensor y = RandomTensor({n, rows}, at::kFloat, 5);
  std::vector<at::Tensor> results;
  for (const int helpers : {0, 1, 4}) {
    const at::Tensor out = at::empty({n, rows}), back = at::empty({n, columns});
    ThreadGroup group(helpers);
    std::vector<std::thread> threads;
    for (int i = 0; i < helpers; ++i) threads.emplace_back([&] { group.Help(); });
    group.Lead([&] {
      strips.TimesTransposed(x, 0, rows, /*add=*/false, out);
      strips.Times(y, 0, rows, /*add=*/false, back);
    });
    for (std::thread& thread : threads) thread.join();
    results.push_back(at::cat({out.view({-1}), back.view({-1})}));
  }
  EXPECT_TRUE(at::equal(results[0], results[1]));
  EXPECT_TRUE(at::equal(results[0], results[2]));
}

TEST(FrozenMatrixTest, RowsInStripsDoNotMeetEachOther) {
  if (!cpu::HasSgemm()) GTEST_SKIP() << "strips are for processors with AVX2";
  at::Tensor dense = RandomTensor({14, 20}, at::kFloat, 3);
  dense[7][3] = std::numeric_limits<float>::quiet_NaN();
  const FrozenMatrix strips(FrozenMatrix::PutInStrips(dense.clone()), 20);
  const at::Tensor x = RandomTensor({3, 20}, at::kFloat, 4), out = at::empty({3, 14});
  strips.TimesTransposed(x, 0, 14, /*add=*/false, out);
  EXPECT_EQ(out.isnan().sum().item<int64_t>(), 3);
  EXPECT_TRUE(out.select(1, 7).isnan().all().item<bool>());
}

}  // namespace
}  // namespace gpuctl::trainer
