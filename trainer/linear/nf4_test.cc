#include "trainer/linear/nf4.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/linear/frozen_matrix.h"
#include "trainer/tests/expect_error.h"
#include "trainer/tests/tensors.h"

namespace gpuctl::trainer {
namespace {

at::Tensor Unpacked(const at::Tensor& matrix) {
  return DequantizeNf4(QuantizeNf4(matrix), matrix.numel(), 0, matrix.numel()).view(matrix.sizes());
}

TEST(Nf4Test, AWeightTakesLittleMoreThanHalfAByte) {
  EXPECT_LT(static_cast<double>(Nf4Bytes(4096 * 4096)) / (4096.0 * 4096.0), 0.5161);
  EXPECT_LE(Nf4Bytes(1), 16);
  for (const int64_t values : {1, 63, 64, 65, 1000, 16384, 16385}) {
    EXPECT_EQ(Nf4Bytes(values) % 4, 0);
    EXPECT_EQ(QuantizeNf4(at::ones({values})).numel(), Nf4Bytes(values));
  }
}

TEST(Nf4Test, NormalValuesComeBackNearly) {
  // The published error of the 16 numbers for normal values is about a tenth.
  const at::Tensor matrix = RandomTensor({300, 333}, at::kFloat, 1);
  EXPECT_LT(RelativeDifference(Unpacked(matrix), matrix), 0.1);
  EXPECT_GT(RelativeDifference(Unpacked(matrix), matrix), 0.05);
  for (const double value : {0.0, 1.0, -3.5}) {
    const at::Tensor same = at::full({7, 100}, value);
    EXPECT_TRUE(at::equal(Unpacked(same), same)) << value;
  }
}

TEST(Nf4Test, TensorsAndLoopsUnpackTheSame) {
  const at::Tensor matrix = RandomTensor({250, 201}, at::kFloat, 2);
  const int64_t values = matrix.numel();
  const at::Tensor packed = QuantizeNf4(matrix), whole = DequantizeNf4(packed, values, 0, values);
  for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{{0, values},
                                                                             {0, 1},
                                                                             {1, 1},
                                                                             {63, 2},
                                                                             {16383, 3},
                                                                             {16385, 20001},
                                                                             {6400, 12800},
                                                                             {values - 1, 1}}) {
    const at::Tensor part = whole.narrow(0, first, count);
    EXPECT_TRUE(at::equal(DequantizeNf4(packed, values, first, count), part)) << first;
    EXPECT_LT(RelativeDifference(
                  DequantizeNf4ByTensors(packed.to(TestDevice()), values, first, count), part),
              1e-6)
        << first;
  }
}

TEST(FrozenMatrixTest, ProductsByPiecesAreThoseOfTheWhole) {
  const std::vector<int64_t> part_rows = {450, 1, 301};
  const int64_t columns = 1001, rows = 752;
  const at::Tensor dense = RandomTensor({rows, columns}, at::kFloat, 3);
  const FrozenMatrix packed(FrozenMatrix::Pack(dense, part_rows, "w").to(TestDevice()), part_rows,
                            columns);
  std::vector<at::Tensor> parts;
  int64_t row = 0;
  for (const int64_t count : part_rows) {
    parts.push_back(Unpacked(dense.narrow(0, row, count).contiguous()));
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
    FrozenMatrix(same).TimesTransposed(x, first, count, /*add=*/false, out);
    EXPECT_LT(RelativeDifference(out, at::mm(x, some.t())), 1e-5);
  }
}

TEST(FrozenMatrixTest, ValuesThatAreNotFiniteAreRefused) {
  at::Tensor dense = at::ones({2, 3});
  dense[1][2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_ERROR(FrozenMatrix::Pack(dense, {2}, "some.weight"), ExitCode::kBadData, "some.weight");
}

}  // namespace
}  // namespace gpuctl::trainer
