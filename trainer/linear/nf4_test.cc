#include "trainer/linear/nf4.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace gpuctl::trainer
