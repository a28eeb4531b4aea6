#include "trainer/lora/adapters.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "trainer/base/philox.h"
#include "trainer/linear/lora_linear.h"
#include "trainer/linear/matmul.h"
#include "trainer/linear/widths.h"

namespace gpuctl::trainer {
namespace {

constexpr LoraWeights BlockWeights::*kPlaces[] = {&BlockWeights::qkv_lora, &BlockWeights::out_lora,
                                                  &BlockWeights::gate_up_lora,
                                                  &BlockWeights::down_lora};

at::Tensor InitialA(const AdaptedMatrix& matrix, int64_t rank, uint64_t seed) {
  const auto parts = static_cast<int64_t>(matrix.parts.size());
  const at::Tensor a_rd = at::empty({parts * rank, matrix.inputs}, at::kFloat);
  const double bound = 1 / std::sqrt(static_cast<double>(matrix.inputs));
  float* next = a_rd.data_ptr<float>();
  for (const LoraPart& part : matrix.parts) {
    for (int64_t i = 0; i < rank * matrix.inputs; ++i) {
      const double uniform =
          RandomUniform(seed, RandomStream::kAdapter, part.module, static_cast<uint64_t>(i));
      *next++ = static_cast<float>(bound * (2 * uniform - 1));
    }
  }
  return a_rd;
}

at::Tensor LengthsOfParts(const AdaptedMatrix& matrix, const at::Tensor& stored) {
  std::vector<at::Tensor> lengths;
  for (const LoraPart& part : matrix.parts) {
    lengths.push_back(MatrixOf(matrix, stored).RowLengths(part.first_row, part.rows));
  }
  return at::cat(lengths);
}

// Calls visit(matrix, index of its A) for each matrix; B and the magnitudes follow A.
template <typename Visit>
void ForEachMatrix(const AdapterLayout& layout, Visit visit) {
  size_t a = layout.model_specs;
  for (const AdaptedMatrix& matrix : layout.matrices) {
    if (matrix.parts.empty()) continue;
    visit(matrix, a);
    a += layout.lora.dora ? 3 : 2;
  }
}

}  // namespace

FrozenMatrix MatrixOf(const AdaptedMatrix& matrix, const at::Tensor& stored) {
  if (matrix.packed_rows.empty()) return FrozenMatrix(stored, matrix.inputs);
  return FrozenMatrix(stored, matrix.packed_rows, matrix.inputs);
}

void AppendInitialAdapters(const AdapterLayout& layout, uint64_t seed,
                           std::vector<at::Tensor>* flat) {
  const at::NoGradGuard no_grad;
  for (const AdaptedMatrix& matrix : layout.matrices) {
    if (matrix.parts.empty()) continue;
    flat->push_back(InitialA(matrix, layout.lora.rank, seed));
    flat->push_back(at::zeros({matrix.rows(), layout.lora.rank}, at::kFloat));
    if (!layout.lora.dora) continue;
    flat->push_back(LengthsOfParts(matrix, (*flat)[matrix.spec]).to(at::kCPU, at::kFloat));
  }
}

std::vector<at::Tensor> BaseLengths(const AdapterLayout& layout,
                                    const std::vector<at::Tensor>& flat) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> lengths;
  for (const AdaptedMatrix& matrix : layout.matrices) {
    if (layout.lora.dora && !matrix.parts.empty())
      lengths.push_back(LengthsOfParts(matrix, flat[matrix.spec]));
  }
  return lengths;
}

void AttachAdapters(const AdapterLayout& layout, const std::vector<at::Tensor>& flat,
                    const std::vector<at::Tensor>& lengths,
                    const std::shared_ptr<const DropoutDraw>& draw, GptWeights* weights) {
  for (const AdaptedMatrix& matrix : layout.matrices) {
    (weights->blocks[matrix.block].*kPlaces[matrix.place]).packed_rows = matrix.packed_rows;
  }
  size_t next = 0;
  ForEachMatrix(layout, [&](const AdaptedMatrix& matrix, size_t a) {
    LoraWeights& place = weights->blocks[matrix.block].*kPlaces[matrix.place];
    place.parts = matrix.parts;
    place.scale = layout.lora.Scale();
    place.a_rd = flat[a];
    place.b_cr = flat[a + 1];
    if (layout.lora.dora) place.magnitude_c = flat[a + 2];
    if (layout.lora.dora) place.base_length_c = lengths[next++];
    place.draw = draw;
  });
}

void MergeAdapters(const AdapterLayout& layout, std::vector<at::Tensor>* flat) {
  const at::NoGradGuard no_grad;
  ForEachMatrix(layout, [&](const AdaptedMatrix& matrix, size_t a) {
    int64_t first_a = 0, first_b = 0;
    for (const LoraPart& part : matrix.parts) {
      const at::Tensor target_cd = (*flat)[matrix.spec].narrow(0, part.first_row, part.rows);
      const auto wide = [&](const at::Tensor& x, int64_t first, int64_t rows) {
        return Widen(x.narrow(0, first, rows)).to(target_cd.device());
      };
      const at::Tensor a_rd = wide((*flat)[a], first_a, layout.lora.rank);
      const at::Tensor b_cr = wide((*flat)[a + 1], first_b, part.rows);
      at::Tensor sum_cd = MatMul(b_cr, a_rd).mul_(layout.lora.Scale()).add_(Widen(target_cd));
      if (layout.lora.dora) {
        const at::Tensor magnitude_c = wide((*flat)[a + 2], first_b, part.rows);
        const at::Tensor length_c = FrozenMatrix(sum_cd, sum_cd.size(1)).RowLengths(0, part.rows);
        sum_cd.mul_(magnitude_c.div(length_c.clamp_min(1e-12)).unsqueeze(1));
      }
      target_cd.copy_(sum_cd);
      first_a += layout.lora.rank;
      first_b += part.rows;
    }
  });
  flat->resize(layout.model_specs);
}

}  // namespace gpuctl::trainer
