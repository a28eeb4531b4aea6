#include <ATen/ops/embedding.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/linear/matmul.h"
#include "trainer/linear/threads.h"
#include "trainer/model/functions.h"

namespace gpuctl::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kColumns = 64;  // of a piece

// Adds rows of the gradient to the sum of the table, in their order. LibTorch would make a gradient
// of the table's size, of which nearly all rows are 0.
struct SummedEmbedding : torch::autograd::Function<SummedEmbedding> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& table_vd,
                            const at::Tensor& tokens_n) {
    context->save_for_backward({table_vd, tokens_n});
    return at::embedding(table_vd, tokens_n);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor sum_vd = GradientSum(saved[0]);
    TORCH_CHECK(sum_vd.defined(), "embedding: the sum of gradients is gone");
    const at::Tensor dy_nd = gradients[0].contiguous();
    const int64_t rows = dy_nd.size(0), width = dy_nd.size(1);
    const auto* tokens = saved[1].data_ptr<int64_t>();
    ForRanges(width, kColumns, [&](int64_t begin, int64_t end) {
      for (int64_t row = 0; row < rows; ++row) {
        const float* from = dy_nd.data_ptr<float>() + row * width;
        float* into = sum_vd.data_ptr<float>() + tokens[row] * width;
        for (int64_t i = begin; i < end; ++i) into[i] += from[i];
      }
    });
    return {at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor Embedding(const at::Tensor& table_vd, const at::Tensor& tokens_n) {
  if (!GradientSum(table_vd).defined()) return at::embedding(table_vd, tokens_n);
  return SummedEmbedding::apply(table_vd, tokens_n);
}

}  // namespace gpuctl::trainer
